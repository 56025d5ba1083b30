-- One order that was unknown, whose charge the gateway had made, and that became paid by a status query: a story that is
-- long enough to be worth reading, and short enough to be read; at best one with a callback in it.
SELECT reference FROM (
    SELECT o.reference, count(*) AS facts, bool_or(e.source = 'callback') AS called
    FROM payguard.orders o JOIN payguard.evidence e ON e.order_id = o.id
    WHERE o.status = 'paid' AND NOT EXISTS (SELECT FROM payguard.reviews r WHERE r.order_id = o.id)
    GROUP BY o.id
    HAVING bool_or(e.source = 'answer' AND e.result = 'unknown' AND e.verdict = 'applied')
    AND bool_or(e.source = 'query' AND e.result = 'paid' AND e.verdict = 'applied')) AS stories
ORDER BY facts > 4, called DESC, facts DESC, reference LIMIT 1;
