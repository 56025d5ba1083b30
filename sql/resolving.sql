-- R9, R13: an operator's word is evidence like any other: it goes through the one door and keeps who said it and why.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

SELECT shop.make('RESOLVE-1', 'unknown');
SELECT verdict, status FROM payguard.resolve_order('RESOLVE-1', 'paid', 'seen in the bank''s list', 'tx-1');
SELECT status, attempts, payments, review FROM shop.look('RESOLVE-1');
SELECT source, result, verdict, note FROM payguard.evidence e JOIN payguard.orders o ON o.id = e.order_id WHERE o.reference = 'RESOLVE-1' AND source = 'operator';
-- the gateway's own word about the same payment is a duplicate
SELECT * FROM shop.callback('charge.paid', 'RESOLVE-1', 'tx-1');
SELECT verdict, status FROM payguard.resolve_order('RESOLVE-1', 'reviewed', 'settled, see file of the 3rd');
SELECT status, review FROM shop.look('RESOLVE-1');
SELECT shop.make('RESOLVE-2', 'unknown');
SELECT verdict, status FROM payguard.resolve_order('RESOLVE-2', 'failed', 'the gateway says by phone that it never got it');
SELECT * FROM shop.claim('RESOLVE-2');
SELECT shop.make('RESOLVE-3', 'paid');
SELECT verdict, status FROM payguard.resolve_order('RESOLVE-3', 'failed', 'no');
SELECT verdict, status FROM payguard.resolve_order('RESOLVE-3', 'reversed', 'chargeback letter');
-- an uncounted payment is kept
SELECT shop.make('RESOLVE-4', 'paid');
SELECT * FROM shop.callback('charge.paid', 'RESOLVE-4', 'second');
SELECT verdict, status FROM payguard.resolve_order('RESOLVE-4', 'kept', 'the customer wanted two', 'second');
SELECT provider_id, counted, state FROM payguard.payments p JOIN payguard.orders o ON o.id = p.order_id WHERE o.reference = 'RESOLVE-4' ORDER BY 1;
SELECT shop.fails($$SELECT payguard.resolve_order('RESOLVE-4', 'kept', 'again', 'second')$$);
-- a parked fact is given to its order, or dismissed; what was judged stays
SELECT * FROM shop.callback('charge.paid', 'STRANGER-1', 'ch_stranger');
SELECT shop.order('RESOLVE-5');
SELECT verdict, status FROM payguard.resolve_evidence((SELECT id FROM payguard.evidence WHERE gateway_reference = 'STRANGER-1'), 'RESOLVE-5', 'same customer, other number');
SELECT status, payments FROM shop.look('RESOLVE-5');
SELECT regexp_replace(shop.fails($$SELECT payguard.resolve_evidence((SELECT id FROM payguard.evidence WHERE gateway_reference = 'STRANGER-1'), NULL, 'no')$$), 'evidence [0-9]+', 'evidence N');
SELECT * FROM shop.callback('charge.paid', 'STRANGER-2', 'ch_stranger2');
SELECT verdict, status FROM payguard.resolve_evidence((SELECT id FROM payguard.evidence WHERE gateway_reference = 'STRANGER-2'), NULL, 'not ours');
-- pauses
SELECT payguard.pause_gateway('shop'), payguard.pause_gateway('shop'), payguard.resume_gateway('shop'), payguard.resume_gateway('shop');
SELECT shop.fails($$SELECT payguard.pause_gateway('shopp')$$);
-- bad input
SELECT shop.fails($$SELECT payguard.resolve_order('RESOLVE-1', 'refunded', 'x')$$);
SELECT shop.fails($$SELECT payguard.resolve_order('RESOLVE-1', 'paid', 'x')$$);
SELECT shop.fails($$SELECT payguard.resolve_order('RESOLVE-1', 'failed', ' ')$$);
SELECT shop.fails($$SELECT payguard.resolve_order('RESOLVE-1', 'failed', NULL)$$);
SELECT shop.fails($$SELECT payguard.resolve_evidence(NULL, NULL, 'x')$$);
SELECT shop.fails($$SELECT payguard.resolve_evidence(999999999, NULL, 'x')$$);
SELECT * FROM shop.damage() WHERE rule <> 'evidence_unmatched';
