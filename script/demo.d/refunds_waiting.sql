-- Refunds that have not come to their end, and callbacks that are still to come.
SELECT count(*) + (:'summary'::jsonb ->> 'callbacks_pending')::int FROM payguard.refunds WHERE state NOT IN ('succeeded', 'failed');
