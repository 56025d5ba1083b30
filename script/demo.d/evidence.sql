-- What is needed to find out why a run went wrong.
\x on
SELECT * FROM verdict WHERE number IS DISTINCT FROM must AND must IS NOT NULL;
SELECT * FROM payguard.check();
\x off
SELECT * FROM ledger_orders l FULL JOIN gateway_orders g USING (reference) LEFT JOIN currencies c ON c.currency = g.currency
WHERE l.reference IS NULL OR coalesce(l.booked, 0) <> coalesce(g.amount_minor / (10 ^ c.decimals)::int, 0)
OR (l.status = 'paid') <> (coalesce(g.charges, 0) > 0) OR l.payments > 1 OR g.charges > 1
OR l.status IN ('created', 'processing', 'unknown');
SELECT o.reference, r.reasons FROM payguard.reviews r JOIN payguard.orders o ON o.id = r.order_id;
SELECT reference, w.* FROM (SELECT reference FROM payguard.orders o WHERE status IN ('created', 'processing', 'unknown')
    UNION SELECT reference FROM ledger_orders l FULL JOIN gateway_orders g USING (reference)
        WHERE (l.status = 'paid') <> (coalesce(g.charges, 0) > 0) OR l.payments > 1 OR g.charges > 1
    UNION SELECT reference FROM payguard.reviews r JOIN payguard.orders o ON o.id = r.order_id
    ORDER BY reference LIMIT 30) odd, payguard.why(reference) AS w;
SELECT * FROM payguard.outbox ORDER BY id LIMIT 100;
