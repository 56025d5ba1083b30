-- The table at the end. must: what the number has to be, if it has to be something.
CREATE TABLE verdict (n serial, what text, number numeric, must numeric, remark text);

INSERT INTO verdict (what, number, must, remark) VALUES
('orders', (SELECT count(*) FROM payguard.orders), NULL, NULL),
('claims tried', :tried, NULL, format('%s clients at the same moment for each order', :'clients')),
('claims won', :won, (SELECT count(*) FROM payguard.attempts),
    format('%s orders at their first claim, %s again after a decline',
        (SELECT count(*) FROM payguard.orders WHERE attempt_no > 0),
        (SELECT coalesce(sum(attempt_no - 1), 0) FROM payguard.orders WHERE attempt_no > 0))),
('claims that met an error', :errors, 0, format('%s lost their connection in the crash and asked again', :'lost')),
('orders never claimed', (SELECT count(*) FROM payguard.orders WHERE status = 'created'), 0, NULL);

INSERT INTO verdict (what, number, must, remark)
SELECT 'charge requests that arrived', (s ->> 'charge_arrivals')::int, NULL::numeric,
    format('%s were answered from their idempotency key', s ->> 'replays')
FROM (SELECT :'summary'::jsonb AS s) books
UNION ALL SELECT 'charges that moved money', (s ->> 'charges')::int,
    (SELECT count(*) FROM payguard.payments), 'as many as payguard has booked'
FROM (SELECT :'summary'::jsonb AS s) books
UNION ALL SELECT 'orders charged twice', (s ->> 'orders_charged_twice_ever')::int, 0, 'by the gateway''s own books'
FROM (SELECT :'summary'::jsonb AS s) books;

INSERT INTO verdict (what, number, must, remark) VALUES
('orders paid', (SELECT count(*) FROM payguard.orders WHERE status = 'paid'),
    (SELECT count(*) FROM gateway_orders WHERE charges > 0), 'those that the gateway charged, and no others'),
('orders failed', (SELECT count(*) FROM payguard.orders WHERE status = 'failed'), NULL,
    'declined or never confirmed: no money moved'),
('orders that need a person', (SELECT count(*) FROM payguard.reviews), NULL,
    (SELECT replace(string_agg(DISTINCT array_to_string(r.reasons, ' and '), ', '),
             'mismatch', 'an answer named a wrong amount')
         || format('; %s decided', count(*) FILTER (WHERE o.status NOT IN ('processing', 'unknown')))
     FROM payguard.reviews r JOIN payguard.orders o ON o.id = r.order_id)),
('orders unknown, no person told', (SELECT count(*) FROM payguard.orders o WHERE status IN ('processing', 'unknown')
    AND NOT EXISTS (SELECT FROM payguard.reviews r WHERE r.order_id = o.id)), 0, NULL),
('orders where the books differ', (SELECT count(*) FROM ledger_orders l FULL JOIN gateway_orders g USING (reference)
    LEFT JOIN currencies c ON c.currency = g.currency
    WHERE l.reference IS NULL OR coalesce(l.booked, 0) <> coalesce(g.amount_minor / (10 ^ c.decimals)::int, 0)
    OR (l.status = 'paid') <> (coalesce(g.charges, 0) > 0) OR l.payments > 1), 0, 'order by order, ledger against gateway'),
('order.paid told more than once', (SELECT count(*) FROM (SELECT FROM payguard.events WHERE type = 'order.paid'
    GROUP BY aggregateid HAVING count(*) > 1) again), 0,
    format('%s callbacks came, %s of them more than once',
        (SELECT coalesce(sum(deliveries), 0) FROM payguard.evidence WHERE source = 'callback'),
        (SELECT count(*) FROM payguard.evidence WHERE source = 'callback' AND (deliveries > 1 OR verdict = 'duplicate')))),
('rows of payguard.check()', (SELECT count(*) FROM payguard.check()), 0, NULL),
('errors, warnings in server''s log', :log_errors, 0, format('crashes: %s, the worker that was killed above', :'crashes')),
('crashes that nobody made', :crashes - :provoked, 0, NULL);

-- Sums, exact, by currency.
INSERT INTO verdict (what, number, must, remark)
SELECT 'charged in ' || currency, coalesce(g.charged, 0), coalesce(l.booked, 0), 'gateway, and what the ledger says'
FROM gateway_sums g FULL JOIN (SELECT currency, sum(amount) AS booked FROM payguard.payments GROUP BY currency) l
USING (currency) ORDER BY currency;

SELECT rtrim(CASE WHEN must IS NULL THEN '    ' WHEN number = must THEN ' ok ' ELSE 'BAD ' END
    || format('%-33s %12s  ', what, trim_scale(number))
    || CASE WHEN must IS NULL THEN coalesce(remark, '')
       WHEN number = must AND what LIKE 'charged in %' THEN 'the ledger says ' || trim_scale(must)
       WHEN number = must THEN coalesce(remark, CASE must WHEN 0 THEN 'must be 0' END, '')
       ELSE 'must be ' || trim_scale(must) || coalesce(' (' || remark || ')', '') END)
FROM verdict ORDER BY n;
