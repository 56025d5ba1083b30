-- Orders whose money is to be given back: all of it for one half, six tenths of it for the other.
CREATE TABLE refundable AS
SELECT reference, CASE WHEN row_number() OVER (ORDER BY id) % 2 = 0 THEN round(amount * 0.6, decimals) END AS amount
FROM payguard.orders JOIN currencies USING (currency)
WHERE status = 'paid' AND amount > 10 ORDER BY id LIMIT 200;
SELECT count(*) FROM refundable;
