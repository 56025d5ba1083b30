-- The second table: what was asked for, what the gateway made, and whether the books agree.
SELECT coalesce(max(n), 0) AS before FROM verdict \gset

INSERT INTO verdict (what, number, must, remark) VALUES
('refunds asked for', :asked, NULL, format('%s clients, each twice for each of %s orders', :'clients', (SELECT count(*) FROM refundable))),
('refunds that were made of it', :requested, (SELECT count(*) FROM payguard.refunds WHERE NOT external),
    format('%s got one under way in place of a second, %s were told that too little is left', :'handed_back', :'refused')),
('asked with another error', :errors, 0, NULL),
('refund requests that arrived', (:'summary'::jsonb ->> 'refund_arrivals')::int, NULL,
    format('%s answers were lost or useless', (SELECT count(*) FROM payguard.evidence
        WHERE refund_id IS NOT NULL AND source = 'answer' AND result = 'unknown'))),
('made at the gateway', (:'summary'::jsonb ->> 'refunds')::int,
    (SELECT count(*) FROM payguard.refunds WHERE state = 'succeeded'), 'as many as payguard has booked'),
('orders paid back twice', (SELECT count(*) FROM gateway_orders WHERE refunded_minor > amount_minor), 0, 'more than was charged, by the gateway''s own books'),
('orders where the books differ', (SELECT count(*) FROM payguard.orders o JOIN gateway_orders g USING (reference)
    JOIN currencies c ON c.currency = g.currency
    WHERE o.refunded_amount <> g.refunded_minor / (10 ^ c.decimals)::int), 0, 'given back, order by order'),
('refunds left unknown', (SELECT count(*) FROM payguard.refunds WHERE state NOT IN ('succeeded', 'failed')), 0, NULL),
('rows of payguard.check()', (SELECT count(*) FROM payguard.check()), 0, NULL);

INSERT INTO verdict (what, number, must, remark)
SELECT 'given back in ' || c.currency, sum(g.refunded_minor / (10 ^ decimals)::int), (SELECT coalesce(sum(o.refunded_amount), 0) FROM payguard.orders o WHERE o.currency = c.currency), NULL
FROM gateway_orders g JOIN currencies c USING (currency) GROUP BY c.currency ORDER BY c.currency;

SELECT rtrim(CASE WHEN must IS NULL THEN '    ' WHEN number = must THEN ' ok ' ELSE 'BAD ' END
    || format('%-33s %12s  ', what, trim_scale(number))
    || CASE WHEN must IS NULL THEN coalesce(remark, '')
       WHEN number = must AND what LIKE 'given back in %' THEN 'the ledger says ' || trim_scale(must)
       WHEN number = must THEN coalesce(remark, CASE must WHEN 0 THEN 'must be 0' END, '')
       ELSE 'must be ' || trim_scale(must) || coalesce(' (' || remark || ')', '') END)
FROM verdict WHERE n > :before ORDER BY n;
