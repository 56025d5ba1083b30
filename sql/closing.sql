-- R3, R9: closing ends what never left at once; what may have left is the gateway's to end, and only its proof closes.
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

-- never sent: closed at once, and the answer does not change when it is asked again
SELECT shop.make('CLOSE-1', 'created');
SELECT * FROM payguard.close_order('CLOSE-1', 'changed my mind');
SELECT * FROM payguard.close_order('CLOSE-1');
SELECT shop.make('CLOSE-2', 'failed');
SELECT * FROM payguard.close_order('CLOSE-2');
-- claimed for the worker and not yet sent: stopped here and now
SELECT shop.order('CLOSE-3');
SELECT * FROM shop.claim('CLOSE-3', 'worker');
SELECT * FROM payguard.close_order('CLOSE-3');
SELECT * FROM shop.look('CLOSE-3');
-- it may have left: the gateway is asked, the wish is kept, proof closes, a late payment is booked
SELECT shop.make('CLOSE-4', 'pending');
SELECT * FROM payguard.close_order('CLOSE-4');
SELECT op, state FROM payguard.outbox x JOIN payguard.orders o ON o.id = x.order_id WHERE o.reference = 'CLOSE-4' ORDER BY op;
SELECT * FROM shop.callback('charge.closed', 'CLOSE-4', 'ch_close-4');
SELECT * FROM shop.look('CLOSE-4');
SELECT * FROM shop.callback('charge.paid', 'CLOSE-4', 'ch_close-4');
SELECT status, payments, events FROM shop.look('CLOSE-4');
-- too late
SELECT shop.make('CLOSE-5', 'paid');
SELECT * FROM payguard.close_order('CLOSE-5');
SELECT * FROM payguard.close_attempt('CLOSE-5');
-- an attempt is given up without the order: the next channel can be tried after proof
SELECT shop.make('CLOSE-6', 'pending');
SELECT * FROM payguard.close_attempt('CLOSE-6', 'other channel');
SELECT * FROM shop.callback('charge.closed', 'CLOSE-6', 'ch_close-6');
SELECT * FROM payguard.close_attempt('CLOSE-6');
SELECT * FROM shop.claim('CLOSE-6');
SELECT shop.order('CLOSE-7');
SELECT * FROM shop.claim('CLOSE-7', 'worker');
SELECT * FROM payguard.close_attempt('CLOSE-7');
-- bad input
SELECT shop.fails($$SELECT payguard.close_order('CLOSE-NONE')$$);
SELECT shop.fails($$SELECT payguard.close_order(NULL)$$);
SELECT shop.fails($$SELECT payguard.close_attempt('CLOSE-1', 'card 4111 1111 1111 1111')$$);
SELECT * FROM shop.damage();
