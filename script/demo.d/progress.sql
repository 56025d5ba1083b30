-- One line of progress: what payguard knows, and what the gateway's books say.
SELECT format('%8s %6s %10s %7s %6s %6s  %7s  %8s %7s %7s %5s', :'clock', count(*) FILTER (WHERE status = 'created'),
    count(*) FILTER (WHERE status = 'processing'), count(*) FILTER (WHERE status = 'unknown'),
    count(*) FILTER (WHERE status = 'paid'), count(*) FILTER (WHERE status = 'failed'),
    (SELECT count(*) FROM payguard.outbox WHERE next_run_at < 'infinity'),
    s -> 'charge_arrivals', s -> 'queries', s -> 'charges', s -> 'orders_charged_twice')
FROM payguard.orders, (SELECT :'summary'::jsonb AS s) books GROUP BY s;
