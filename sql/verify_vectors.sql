-- verify_callback agrees with signatures that the vendors' own libraries made and judged: Standard Webhooks (standardwebhooks, svix) and Stripe (stripe-node).
\getenv abs_srcdir PG_ABS_SRCDIR
\set shop :abs_srcdir '/sql/include/shop.sql'
\i :shop

CREATE SERVER vec_std FOREIGN DATA WRAPPER payguard OPTIONS (adapter 'generic', base_url 'https://vec.example');
CREATE USER MAPPING FOR PUBLIC SERVER vec_std OPTIONS (webhook_secret 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw');
CREATE SERVER vec_stripe FOREIGN DATA WRAPPER payguard OPTIONS (adapter 'stripe_charges', base_url 'https://vec.example');
CREATE USER MAPPING FOR PUBLIC SERVER vec_stripe OPTIONS (webhook_secret 'whsec_test_payguard_1234567890');
CREATE SERVER vec_stripe_cut FOREIGN DATA WRAPPER payguard OPTIONS (adapter 'stripe_charges', base_url 'https://vec.example');
CREATE USER MAPPING FOR PUBLIC SERVER vec_stripe_cut OPTIONS (webhook_secret 'test_payguard_1234567890');
-- gateway, name, what the library said, when, headers, body in base64 (empty: the usual one)
CREATE TEMP TABLE vectors (n serial, gateway text, name text, expected text, at bigint, headers jsonb, body text);
INSERT INTO vectors (gateway, name, expected, at, headers, body) VALUES
	('vec_std', 'ok_plain', 'valid', 1760000000, '{"webhook-id": "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", "webhook-timestamp": "1760000000", "webhook-signature": "v1,ICOZQEm646saOgarz3ZAa9+erpRte0zgareR1NfUyGY="}', 'usual'),
	('vec_std', 'ok_unicode', 'valid', 1760000000, '{"webhook-id": "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", "webhook-timestamp": "1760000000", "webhook-signature": "v1,DgrdUgMvpm4CHhEEqn6zYh/kBnwuS0tLlG2FvUfectg="}', 'eyJpZCI6ImV2dF8yIiwibm90ZSI6ImNhZsOpIMOxYW5kw7og6K6i5Y2VIOKEljQyIPCfp74iLCJhbW91bnQiOjEwMH0='),
	('vec_std', 'ok_crlf', 'valid', 1760000000, '{"webhook-id": "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", "webhook-timestamp": "1760000000", "webhook-signature": "v1,4gDos8Ynd46ReIhEPwpKcMkNorcnc72p8UReqcEuGYo="}', 'ew0KICAiaWQiOiAiZXZ0XzQiLA0KICAiYW1vdW50IjogMTAwDQp9DQo='),
	('vec_std', 'ok_escaped', 'valid', 1760000000, '{"webhook-id": "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", "webhook-timestamp": "1760000000", "webhook-signature": "v1,yKeYpHXNDOnsb/kxx1qy1XhNh3KvzTZegeK/EESFebI="}', 'eyJpZCI6ImV2dF81IiwidXJsIjoiaHR0cHM6XC9cL3guZXhhbXBsZVwvYT9iPTEmYz0yIiwicSI6Ilx1MDBlOVwiIiwiYW1vdW50IjoxMDAuMDB9'),
	('vec_std', 'ok_two_sigs_second_matches', 'valid', 1760000000, '{"webhook-id": "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", "webhook-timestamp": "1760000000", "webhook-signature": "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA= v1,ICOZQEm646saOgarz3ZAa9+erpRte0zgareR1NfUyGY="}', 'usual'),
	('vec_std', 'ok_with_v1a_and_v2', 'valid', 1760000000, '{"webhook-id": "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", "webhook-timestamp": "1760000000", "webhook-signature": "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg== v1,ICOZQEm646saOgarz3ZAa9+erpRte0zgareR1NfUyGY= v2,xx"}', 'usual'),
	('vec_std', 'ok_age_300', 'valid', 1760000300, '{"webhook-id": "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", "webhook-timestamp": "1760000000", "webhook-signature": "v1,ICOZQEm646saOgarz3ZAa9+erpRte0zgareR1NfUyGY="}', 'usual'),
	('vec_std', 'bad_age_301', 'invalid', 1760000301, '{"webhook-id": "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", "webhook-timestamp": "1760000000", "webhook-signature": "v1,ICOZQEm646saOgarz3ZAa9+erpRte0zgareR1NfUyGY="}', 'usual'),
	('vec_std', 'bad_future_301', 'invalid', 1759999699, '{"webhook-id": "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", "webhook-timestamp": "1760000000", "webhook-signature": "v1,ICOZQEm646saOgarz3ZAa9+erpRte0zgareR1NfUyGY="}', 'usual'),
	('vec_std', 'bad_id_changed', 'invalid', 1760000000, '{"webhook-id": "msg_other", "webhook-timestamp": "1760000000", "webhook-signature": "v1,ICOZQEm646saOgarz3ZAa9+erpRte0zgareR1NfUyGY="}', 'usual'),
	('vec_std', 'bad_body_changed', 'invalid', 1760000000, '{"webhook-id": "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", "webhook-timestamp": "1760000000", "webhook-signature": "v1,ICOZQEm646saOgarz3ZAa9+erpRte0zgareR1NfUyGY="}', 'eyJpZCI6ImV2dF8xIiwidHlwZSI6InBheW1lbnRfaW50ZW50LnN1Y2NlZWRlZCIsImNyZWF0ZWQiOjE3NjAwMDAwMDAsImRhdGEiOnsib2JqZWN0Ijp7ImlkIjoicGlfMSIsImFtb3VudCI6NDIwMCwiY3VycmVuY3kiOiJ1c2QiLCJzdGF0dXMiOiJzdWNjZWVkZWQiLCJtZXRhZGF0YSI6eyJvcmRlcl9pZCI6Im9yZC0xIn19fX0g'),
	('vec_std', 'bad_other_secret', 'invalid', 1760000000, '{"webhook-id": "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", "webhook-timestamp": "1760000000", "webhook-signature": "v1,XX/OFC7/bA8R3xJ7BgjCEv3+cRSkLAcYZhvBjy8qETQ="}', 'usual'),
	('vec_std', 'bad_missing_id', 'invalid', 1760000000, '{"webhook-timestamp": "1760000000", "webhook-signature": "v1,ICOZQEm646saOgarz3ZAa9+erpRte0zgareR1NfUyGY="}', 'usual'),
	('vec_std', 'bad_comma_list', 'invalid', 1760000000, '{"webhook-id": "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", "webhook-timestamp": "1760000000", "webhook-signature": "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=,v1,ICOZQEm646saOgarz3ZAa9+erpRte0zgareR1NfUyGY="}', 'usual'),
	('vec_std', 'ok_empty_body', 'valid', 1760000000, '{"webhook-id": "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", "webhook-timestamp": "1760000000", "webhook-signature": "v1,DHxtMZvMPd3fkogdeGtLNG4q+FVW8UYmVzZ8MBfrZiI="}', ''),
	('vec_std', 'ok_header_case', 'valid', 1760000000, '{"Webhook-Id": "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", "WEBHOOK-TIMESTAMP": "1760000000", "Webhook-Signature": "v1,ICOZQEm646saOgarz3ZAa9+erpRte0zgareR1NfUyGY="}', 'usual'),
	('vec_std', 'bad_svix_names_to_standard_library', 'invalid', 1760000000, '{"svix-id": "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", "svix-timestamp": "1760000000", "svix-signature": "v1,ICOZQEm646saOgarz3ZAa9+erpRte0zgareR1NfUyGY="}', 'usual'),
	('vec_std', 'bad_hex_signature', 'invalid', 1760000000, '{"webhook-id": "msg_2KWPBgLlAfxdpx2AI54pPJ85f4W", "webhook-timestamp": "1760000000", "webhook-signature": "v1,2023994049bae3ab1a3a06abcf76406bdf9eae946d7b4ce06ab791d4d7d4c866"}', 'usual');
INSERT INTO vectors (gateway, name, expected, at, headers, body) VALUES
	('vec_stripe', 'ok_plain', 'valid', 1760000000, '{"Stripe-Signature": "t=1760000000,v1=07b727bc83ff5325aecae815610c5b9429bd686238e5e43a643790d0880f1158"}', 'usual'),
	('vec_stripe', 'ok_unicode', 'valid', 1760000000, '{"Stripe-Signature": "t=1760000000,v1=4381ff47e54a840b426d425cc1d0f8a944f53e445ae889c05835b7c846f7d67b"}', 'eyJpZCI6ImV2dF8yIiwibm90ZSI6ImNhZsOpIMOxYW5kw7og6K6i5Y2VIOKEljQyIPCfp74iLCJhbW91bnQiOjEwMH0='),
	('vec_stripe', 'ok_crlf', 'valid', 1760000000, '{"Stripe-Signature": "t=1760000000,v1=374bbd18575e855f0bf2c3e8c1dcbc2f7a77aafe3b208d280124c8f3a5993d66"}', 'ew0KICAiaWQiOiAiZXZ0XzQiLA0KICAiYW1vdW50IjogMTAwDQp9DQo='),
	('vec_stripe', 'ok_escaped', 'valid', 1760000000, '{"Stripe-Signature": "t=1760000000,v1=cebce21ad3fbeecd4c9a7df0e3db2e90619e4754bb8028c8f09088cb75da1dda"}', 'eyJpZCI6ImV2dF81IiwidXJsIjoiaHR0cHM6XC9cL3guZXhhbXBsZVwvYT9iPTEmYz0yIiwicSI6Ilx1MDBlOVwiIiwiYW1vdW50IjoxMDAuMDB9'),
	('vec_stripe', 'bad_age_301', 'invalid', 1760000301, '{"Stripe-Signature": "t=1760000000,v1=07b727bc83ff5325aecae815610c5b9429bd686238e5e43a643790d0880f1158"}', 'usual'),
	('vec_stripe', 'ok_future_10min', 'valid', 1759999400, '{"Stripe-Signature": "t=1760000000,v1=07b727bc83ff5325aecae815610c5b9429bd686238e5e43a643790d0880f1158"}', 'usual'),
	('vec_stripe', 'ok_two_v1_second_matches', 'valid', 1760000000, '{"Stripe-Signature": "t=1760000000,v1=0000000000000000000000000000000000000000000000000000000000000000,v1=07b727bc83ff5325aecae815610c5b9429bd686238e5e43a643790d0880f1158"}', 'usual'),
	('vec_stripe', 'ok_two_v1_first_matches', 'valid', 1760000000, '{"Stripe-Signature": "t=1760000000,v1=07b727bc83ff5325aecae815610c5b9429bd686238e5e43a643790d0880f1158,v1=ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff"}', 'usual'),
	('vec_stripe', 'bad_only_v0', 'invalid', 1760000000, '{"Stripe-Signature": "t=1760000000,v0=07b727bc83ff5325aecae815610c5b9429bd686238e5e43a643790d0880f1158"}', 'usual'),
	('vec_stripe', 'bad_v1_under_old_secret', 'invalid', 1760000000, '{"Stripe-Signature": "t=1760000000,v1=0c45c1a623d68697fdd2ceb3580b0c3bcba0aca94bab733874f486b3b0c9a7ae"}', 'usual'),
	('vec_stripe', 'bad_body_changed', 'invalid', 1760000000, '{"Stripe-Signature": "t=1760000000,v1=07b727bc83ff5325aecae815610c5b9429bd686238e5e43a643790d0880f1158"}', 'eyJpZCI6ImV2dF8xIiwidHlwZSI6InBheW1lbnRfaW50ZW50LnN1Y2NlZWRlZCIsImNyZWF0ZWQiOjE3NjAwMDAwMDAsImRhdGEiOnsib2JqZWN0Ijp7ImlkIjoicGlfMSIsImFtb3VudCI6NDIwMSwiY3VycmVuY3kiOiJ1c2QiLCJzdGF0dXMiOiJzdWNjZWVkZWQiLCJtZXRhZGF0YSI6eyJvcmRlcl9pZCI6Im9yZC0xIn19fX0='),
	('vec_stripe', 'bad_body_reserialised', 'invalid', 1760000000, '{"Stripe-Signature": "t=1760000000,v1=e73b96885de82bdc446fe680176d97b0cdbe977384f4024c1acc4d9222cb3fd7"}', 'eyJpZCI6ImV2dF8zIiwiYW1vdW50IjoxMDB9'),
	('vec_stripe', 'bad_trailing_newline_added', 'invalid', 1760000000, '{"Stripe-Signature": "t=1760000000,v1=07b727bc83ff5325aecae815610c5b9429bd686238e5e43a643790d0880f1158"}', 'eyJpZCI6ImV2dF8xIiwidHlwZSI6InBheW1lbnRfaW50ZW50LnN1Y2NlZWRlZCIsImNyZWF0ZWQiOjE3NjAwMDAwMDAsImRhdGEiOnsib2JqZWN0Ijp7ImlkIjoicGlfMSIsImFtb3VudCI6NDIwMCwiY3VycmVuY3kiOiJ1c2QiLCJzdGF0dXMiOiJzdWNjZWVkZWQiLCJtZXRhZGF0YSI6eyJvcmRlcl9pZCI6Im9yZC0xIn19fX0K'),
	('vec_stripe', 'bad_timestamp_changed', 'invalid', 1760000000, '{"Stripe-Signature": "t=1760000001,v1=07b727bc83ff5325aecae815610c5b9429bd686238e5e43a643790d0880f1158"}', 'usual'),
	('vec_stripe', 'bad_space_after_comma', 'invalid', 1760000000, '{"Stripe-Signature": "t=1760000000, v1=07b727bc83ff5325aecae815610c5b9429bd686238e5e43a643790d0880f1158"}', 'usual'),
	('vec_stripe', 'bad_no_t', 'invalid', 1760000000, '{"Stripe-Signature": "v1=07b727bc83ff5325aecae815610c5b9429bd686238e5e43a643790d0880f1158"}', 'usual'),
	('vec_stripe', 'ok_empty_body', 'valid', 1760000000, '{"Stripe-Signature": "t=1760000000,v1=53410bed5acaa95fbf8b08548e538c45a09a5a44786a94c7675e887eea7569ee"}', ''),
	('vec_stripe', 'bad_truncated_sig', 'invalid', 1760000000, '{"Stripe-Signature": "t=1760000000,v1=07b727bc83ff5325aecae815610c5b9429bd686238e5e43a643790d0880f115"}', 'usual'),
	('vec_stripe_cut', 'bad_secret_without_prefix', 'invalid', 1760000000, '{"Stripe-Signature": "t=1760000000,v1=07b727bc83ff5325aecae815610c5b9429bd686238e5e43a643790d0880f1158"}', 'usual'),
	('vec_stripe', 'ok_duplicate_t_last_wins', 'valid', 1760000000, '{"Stripe-Signature": "t=1,t=1760000000,v1=07b727bc83ff5325aecae815610c5b9429bd686238e5e43a643790d0880f1158"}', 'usual');
UPDATE vectors SET body = 'eyJpZCI6ImV2dF8xIiwidHlwZSI6InBheW1lbnRfaW50ZW50LnN1Y2NlZWRlZCIsImNyZWF0ZWQiOjE3NjAwMDAwMDAsImRhdGEiOnsib2JqZWN0Ijp7ImlkIjoicGlfMSIsImFtb3VudCI6NDIwMCwiY3VycmVuY3kiOiJ1c2QiLCJzdGF0dXMiOiJzdWNjZWVkZWQiLCJtZXRhZGF0YSI6eyJvcmRlcl9pZCI6Im9yZC0xIn19fX0=' WHERE body = 'usual';
SELECT gateway, name, expected, v.reason FROM vectors, payguard.verify_callback(gateway, headers, decode(body, 'base64'), NULL, to_timestamp(at)) AS v
	WHERE v.valid = (expected = 'valid') ORDER BY n;
-- where it does not agree with the library
SELECT gateway, name, expected, v.valid, v.reason FROM vectors, payguard.verify_callback(gateway, headers, decode(body, 'base64'), NULL, to_timestamp(at)) AS v
	WHERE v.valid IS DISTINCT FROM (expected = 'valid') ORDER BY n;
-- raw bytes are what is signed: bytes that are no UTF-8, and a byte order mark
SELECT v.valid, v.reason FROM (VALUES ('\x00ff80'::bytea), ('\xefbbbf7b7d')) AS b (body), LATERAL (SELECT '1760000000' AS ts) AS t,
	LATERAL payguard.verify_callback('vec_stripe', jsonb_build_object('stripe-signature', 't=' || ts || ',v1=' || encode(hmac(convert_to(ts || '.', 'UTF8') || body, 'whsec_test_payguard_1234567890', 'sha256'), 'hex')), body, NULL, to_timestamp(1760000000)) AS v;
-- what the message says is told by the dry run, and nothing is stored or counted
SELECT shop.counts() AS before \gset
SELECT v.* FROM (SELECT shop.body('charge.paid', 'VECTOR1', 'ch_vector1') AS body) AS b, payguard.verify_callback('vec_std', shop.sign(body, 'evt_vector1', to_timestamp(1760000000), 'MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'), convert_to(body, 'UTF8'), at => to_timestamp(1760000000)) AS v;
SELECT v.* FROM (SELECT shop.body('charge.paid', 'VECTOR1', 'ch_vector1', status => 'failed') AS body) AS b, payguard.verify_callback('vec_std', shop.sign(body, 'evt_vector1', to_timestamp(1760000000), 'MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'), convert_to(body, 'UTF8'), at => to_timestamp(1760000000)) AS v;
SELECT shop.counts() = :'before' AS nothing_stored;
DROP SERVER vec_std, vec_stripe, vec_stripe_cut CASCADE;
