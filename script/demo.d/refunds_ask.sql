-- One client: asks for every refund twice, under a key of its own, in an order of its own.
SELECT format('SELECT verdict FROM payguard.request_refund(%L, %L, %s)', reference, :'client', coalesce(amount::text, 'NULL'))
FROM refundable, generate_series(1, 2) AS time ORDER BY md5(reference || :'client'), time
\gexec
