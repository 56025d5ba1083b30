-- The gateway and the orders. The times are shorter than anybody would set them, so that the demo ends soon.
CREATE EXTENSION payguard;
CREATE SERVER shop FOREIGN DATA WRAPPER payguard OPTIONS (
    adapter 'generic', base_url :'gateway_url', mode 'test', connect_timeout '1s', total_timeout '2s', send_window '20s',
    query_schedule '200ms,500ms,1s,1s,2s,2s,2s,2s,3s,3s,3s,3s,3s,3s,3s,3s');
CREATE USER MAPPING FOR PUBLIC SERVER shop OPTIONS (api_key 'sandbox-key', webhook_secret :'webhook_secret');

-- Currencies with no, two and three decimal places.
CREATE TABLE currencies (currency text PRIMARY KEY, decimals int NOT NULL);
INSERT INTO currencies VALUES ('CNY', 2), ('EUR', 2), ('JPY', 0), ('KWD', 3), ('USD', 2);

SELECT setseed(:seed / 1000000.0) \g /dev/null
SELECT count(payguard.create_order(amount, currency, 'shop', 'ORDER-' || lpad(n::text, 4, '0')))
FROM (SELECT n, currency, (1 + floor(random() * 500000))::numeric / (10 ^ decimals)::int AS amount
      FROM (SELECT n, (ARRAY['CNY', 'EUR', 'JPY', 'KWD', 'USD'])[1 + n % 5] AS currency
            FROM generate_series(1, :orders) n) numbered JOIN currencies USING (currency)
      ORDER BY n) priced
\g /dev/null
