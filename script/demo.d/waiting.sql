-- Orders that are not decided and about which payguard will still ask soon, and callbacks that are still to come. An order
-- that needs a person is waited for only as long as payguard asks by itself within the next minute.
SELECT count(*) + (:'summary'::jsonb ->> 'callbacks_pending')::int FROM payguard.orders o
WHERE o.status IN ('created', 'processing', 'unknown')
AND (NOT EXISTS (SELECT FROM payguard.reviews r WHERE r.order_id = o.id)
    OR EXISTS (SELECT FROM payguard.outbox x WHERE x.order_id = o.id AND x.next_run_at < clock_timestamp() + interval '1 min'));
