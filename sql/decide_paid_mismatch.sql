-- Decision table, R16: paid with another amount, currency, gateway or mode is kept beside the books, and the state stays.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

SELECT * FROM shop.row('AMNT', ARRAY['created', 'processing', 'unknown', 'pending', 'failed', 'closed', 'paid', 'refunded', 'reversed'], 'charge.paid', 'off_', 39901);
SELECT * FROM shop.row('LESS', ARRAY['processing'], 'charge.paid', 'off_', 39899);
SELECT * FROM shop.row('CURR', ARRAY['created', 'processing', 'paid'], 'charge.paid', 'off_', 39900, 'USD');
-- a currency with other decimals: 39900 of JPY are not 399.00 of anything
SELECT * FROM shop.row('YENS', ARRAY['processing'], 'charge.paid', 'off_', 39900, 'JPY');
-- another gateway than the attempt's, signed with its own secret
CREATE SERVER mism FOREIGN DATA WRAPPER payguard OPTIONS (adapter 'generic', base_url 'https://mism.example');
CREATE USER MAPPING FOR PUBLIC SERVER mism OPTIONS (webhook_secret 'whsec_cGF5Z3VhcmQtdGVzdC13ZWJob29rLWtl');
SELECT * FROM shop.row('GATE', ARRAY['created', 'processing', 'unknown', 'failed', 'closed', 'paid'], 'charge.paid', 'off_', gateway => 'mism');
DROP SERVER mism CASCADE;
-- the application's own answer with other money: order and attempt are unknown, and the gateway is asked
SELECT shop.make('OWNS-1', 'processing'), shop.make('OWNS-2', 'processing');
SELECT * FROM shop.report('OWNS-1', 'paid', 'ch_owns1', 398.99, 'CNY');
SELECT * FROM shop.report('OWNS-2', 'paid', 'ch_owns2', 399.00, 'EUR');
SELECT * FROM shop.look('OWNS-1');
SELECT * FROM shop.look('OWNS-2');
-- a matching fact for the same id later makes that row the counted one with the right amount; the review stays
SELECT * FROM shop.callback('charge.paid', 'OWNS-1', 'ch_owns1');
SELECT * FROM shop.look('OWNS-1');
-- a mismatch of the counted payment's own id changes nothing but the review
SELECT shop.make('OWNS-3', 'paid');
SELECT verdict FROM shop.callback('charge.paid', 'OWNS-3', 'ch_owns-3', 39901);
SELECT * FROM shop.look('OWNS-3');
-- a second mismatch of the same id is kept as evidence, and the first payment row stays
SELECT verdict FROM shop.callback('charge.paid', 'OWNS-2', 'ch_owns2', 12345);
SELECT payments, review FROM shop.look('OWNS-2');
SELECT * FROM shop.damage();
