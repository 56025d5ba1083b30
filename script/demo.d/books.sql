-- The gateway's books, to be laid beside the ledger.
CREATE TABLE gateway_orders (reference text PRIMARY KEY, reference_last text, arrivals int, charges int, amount_minor numeric,
    currency text, status text, refunded_minor numeric);
CREATE TABLE gateway_sums AS
SELECT currency, (sums ->> 'charged')::numeric / (10 ^ decimals)::int AS charged
FROM jsonb_each(:'summary'::jsonb -> 'amounts') AS amounts (currency, sums) JOIN currencies USING (currency);

-- Every payment that payguard booked, counted or not.
CREATE VIEW ledger_orders AS
SELECT o.reference, o.currency, o.status, o.id,
    coalesce(sum(p.amount), 0) AS booked, count(p.provider_id) AS payments
FROM payguard.orders o LEFT JOIN payguard.payments p ON p.order_id = o.id GROUP BY o.id;
