SELECT to_char(at, 'HH24:MI:SS.MS'), what, detail FROM payguard.why(:'reference');
