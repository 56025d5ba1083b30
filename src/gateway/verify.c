/*-------------------------------------------------------------------------
 *
 * verify.c
 *	  Is this callback from the gateway?
 *
 * The code is computed over the bytes as they came and compared in constant
 * time.  Anything malformed is a refusal and never an error, and no reason
 * given may hold a byte of a secret or of an expected signature.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "gateway/adapter.h"

#define MAX_SIGNATURES	32		/* in one header; more is no gateway's doing */
#define MAX_PIECES		40

/* Add the pieces of one message element: text with {variables}. */
static List *
compile_pieces(const Place *place, const char *text, bool optional, int element, List *pieces)
{
	static const Word variables[] = {
		{"body", MESSAGE_BODY}, {"url", MESSAGE_URL}, {"id", MESSAGE_ID},
		{"ts", MESSAGE_TIMESTAMP}, {NULL, 0}
	};

	while (*text !='\0')
	{
		MessagePiece *piece = palloc0(sizeof(MessagePiece));
		size_t		length = strcspn(text, "{");
		int			i;

		piece->optional = optional;
		piece->element = element;
		piece->part = MESSAGE_TEXT;
		if (length > 0)
			piece->text = pnstrdup(text, length);
		else
		{
			JsonNode   *node = palloc0(sizeof(JsonNode));
			Place		inner = *place;

			length = strcspn(text, "}");
			if (text[length] == '\0')
				payguard_place_refuse(place, "\"}\" after \"{\"");
			node->kind = JSON_KIND_STRING;
			node->text = pnstrdup(text +1, length - 1);
			inner.node = node;
			length++;
			for (i = 0; variables[i].word != NULL; i++)
				if (strcmp(variables[i].word, node->text) == 0)
					break;
			piece->part = variables[i].word != NULL ? (MessagePart) variables[i].value : MESSAGE_SOURCE;
			if (piece->part == MESSAGE_SOURCE)
				piece->source = payguard_source_compile(&inner);
		}
		text	  +=length;

		pieces = lappend(pieces, piece);
	}
	if (list_length(pieces) > MAX_PIECES)
		payguard_place_refuse(place, "fewer parts");
	return pieces;
}

/* The message: strings, or {"text": ..., "optional": true} which vanish when
 * what they name is missing. */
static List *
compile_message(const Place *place)
{
	static const char *const names[] = {"text", "optional"};
	List	   *pieces = NIL;
	JsonNode   *element;
	int			index = 0;

	if (place->node->kind != JSON_KIND_ARRAY || place->node->count == 0)
		payguard_place_refuse(place, "a list of the message's parts, such as [\"{ts}\", \".\", \"{body}\"]");
	for (element = place->node->first; element != NULL; element = element->next)
	{
		Place		inner = payguard_place_element(place, index++, element);
		Place		member;
		bool		optional = false;

		if (element->kind == JSON_KIND_OBJECT)
		{
			payguard_place_check_members(&inner, names, lengthof(names));
			if (payguard_place_find(&inner, "optional", &member))
				optional = payguard_place_boolean(&member);
			if (!payguard_place_find(&inner, "text", &member))
				payguard_place_refuse(&inner, "a member \"text\"");
			inner = member;
		}
		pieces = compile_pieces(&inner, payguard_place_string(&inner), optional, index, pieces);
	}
	return pieces;
}

static bool
message_has(List *message, MessagePart part)
{
	ListCell   *cell;

	foreach(cell, message)
		if (((MessagePiece *) lfirst(cell))->part == part)
		return true;
	return false;
}

/* Where the signature stands and how it is taken apart. */
static void
compile_from(const Place *signature, SignatureSpec *spec)
{
	static const char *const names[] = {"source", "parse", "sig", "ts"};
	static const Word parses[] = {
		{"plain", SIGNATURE_PARSE_PLAIN}, {"kv", SIGNATURE_PARSE_KV},
		{"list", SIGNATURE_PARSE_LIST}, {NULL, 0}
	};
	Place		from;
	Place		member;

	if (!payguard_place_find(signature, "from", &from))
		payguard_place_refuse(signature, "a member \"from\"");
	payguard_place_check_members(&from, names, lengthof(names));
	if (!payguard_place_find(&from, "source", &member))
		payguard_place_refuse(&from, "a member \"source\" such as \"header:X-Signature\"");
	spec->from = payguard_source_compile(&member);
	spec->by_item = (strncmp(payguard_json_scalar(member.node) != NULL ?
							 payguard_json_scalar(member.node) : "", "json:", 5) == 0);
	if (payguard_place_find(&from, "parse", &member))
		spec->parse = payguard_place_word(&member, "form", parses);
	if (payguard_place_find(&from, "sig", &member))
		spec->sig = payguard_place_string(&member);
	else if (spec->parse != SIGNATURE_PARSE_PLAIN)
		payguard_place_refuse(&from, "a member \"sig\" with the signatures' name");
	if (payguard_place_find(&from, "ts", &member))
	{
		if (spec->parse != SIGNATURE_PARSE_KV)
			payguard_place_refuse(&member, "\"parse\": \"kv\" (else use the signature's own \"ts\")");
		spec->ts_name = payguard_place_string(&member);
	}
}

/* The clock: a time that is not signed proves nothing and is refused. */
static void
compile_clock(const Place *signature, SignatureSpec *spec)
{
	static const Word bounds[] = {{"both", false}, {"past", true}, {NULL, 0}};
	static const Word units[] = {{"s", 1000000}, {"ms", 1000}, {NULL, 0}};
	Place		member;

	spec->ts_unit = 1000000;
	if (payguard_place_find(signature, "ts", &member))
		spec->ts = payguard_source_compile(&member);
	if (payguard_place_find(signature, "id", &member))
		spec->id = payguard_source_compile(&member);
	if (payguard_place_find(signature, "tolerance", &member))
		spec->tolerance = payguard_place_integer(&member, 1, 86400);
	if (payguard_place_find(signature, "bound", &member))
		spec->past_only = payguard_place_word(&member, "bound", bounds);
	if (payguard_place_find(signature, "ts_unit", &member))
		spec->ts_unit = payguard_place_word(&member, "unit", units);
	if (spec->tolerance > 0 && spec->ts == NULL && spec->ts_name == NULL)
		payguard_place_refuse(signature, "a time (\"ts\") with \"tolerance\"");
	if (spec->tolerance > 0 && !message_has(spec->message, MESSAGE_TIMESTAMP))
		payguard_place_refuse(signature, "{ts} in \"message\": a time that is not signed proves nothing");
	if (message_has(spec->message, MESSAGE_TIMESTAMP) && spec->ts == NULL && spec->ts_name == NULL)
		payguard_place_refuse(signature, "a time (\"ts\") for {ts}");
	if (message_has(spec->message, MESSAGE_ID) && spec->id == NULL)
		payguard_place_refuse(signature, "an \"id\" for {id}");
}

/* Compile the member "signature" of a webhook. */
SignatureSpec
payguard_signature_compile(const Place *place)
{
	static const char *const names[] = {
		"alg", "key", "key_strip", "from", "ts", "id", "message", "encode", "tolerance",
		"bound", "ts_unit"
	};
	static const Word algorithms[] = {
		{"hmac-sha256", SIGNATURE_HMAC_SHA256}, {"hmac-sha1", SIGNATURE_HMAC_SHA1},
		{"hmac-sha512", SIGNATURE_HMAC_SHA512}, {"none", -1}, {NULL, 0}
	};
	static const Word keys[] = {
		{"text", KEY_FORM_TEXT}, {"hex", KEY_FORM_HEX}, {"base64", KEY_FORM_BASE64}, {NULL, 0}
	};
	static const Word encodings[] = {{"hex", false}, {"base64", true}, {NULL, 0}};
	SignatureSpec spec;
	Place		member;
	int			algorithm;

	memset(&spec, 0, sizeof(spec));
	payguard_place_check_members(place, names, lengthof(names));
	if (!payguard_place_find(place, "alg", &member))
		payguard_place_refuse(place, "a member \"alg\"");
	algorithm = payguard_place_word(&member, "algorithm", algorithms);
	if (algorithm < 0)
	{
		spec.none = true;
		return spec;
	}
	spec.algorithm = algorithm;
	if (payguard_place_find(place, "key", &member))
		spec.key_form = payguard_place_word(&member, "form", keys);
	if (payguard_place_find(place, "key_strip", &member))
		spec.key_strip = payguard_place_string(&member);
	if (payguard_place_find(place, "encode", &member))
		spec.base64 = payguard_place_word(&member, "encoding", encodings);
	compile_from(place, &spec);
	if (!payguard_place_find(place, "message", &member))
		payguard_place_refuse(place, "a member \"message\"");
	spec.message = compile_message(&member);
	compile_clock(place, &spec);
	return spec;
}

/* What a signature header holds. */
typedef struct Claims
{
	int			count;
	const char *signatures[MAX_SIGNATURES];
	const char *ts;
} Claims;

/* Take the header's value apart; false when it holds no signature of ours. */
static bool
read_claims(const SignatureSpec *spec, const char *text, Claims *claims)
{
	const char *separator = (spec->parse == SIGNATURE_PARSE_KV) ? "," : " ";
	char		inner = (spec->parse == SIGNATURE_PARSE_KV) ? '=' : ',';

	if (spec->parse == SIGNATURE_PARSE_PLAIN)
	{
		claims->signatures[claims->count++] = text;

		return true;
	}
	while (*text !='\0')
	{
		size_t		length = strcspn(text, separator);
		char	   *part = pnstrdup(text, length);
		char	   *value = strchr(part, inner);

		if (value != NULL)
		{
			*value++ = '\0';
			if (strcmp(part, spec->sig) == 0)
			{
				if (claims->count == MAX_SIGNATURES)
					return false;
				claims->signatures[claims->count++] = value;
			}
			else if (spec->ts_name != NULL && strcmp(part, spec->ts_name) == 0)
				claims->ts = value;
		}
		text	  +=length + (text[length] != '\0');
	}
	return claims->count > 0;
}

/* The bytes of one piece; false when what it names is missing. */
static bool
piece_bytes(const MessagePiece *piece, const SignedMessage *message, const char *id,
			const char *ts, BytesView *view)
{
	const char *text = NULL;

	switch (piece->part)
	{
		case MESSAGE_TEXT:
			text = piece->text;

			break;
		case MESSAGE_BODY:
			view->data = message->body;
			view->length = message->body_length;
			return true;
		case MESSAGE_URL:
			text = message->url;

			break;
		case MESSAGE_ID:
			text = id;

			break;
		case MESSAGE_TIMESTAMP:
			text = ts;

			break;
		case MESSAGE_SOURCE:
			text = payguard_source_take(piece->source, message->scope).text;

			break;
	}
	view->data = text !=NULL ? text : "";
	view->length = text !=NULL ? strlen(text) : 0;
	return text !=NULL;
}

/* Is some piece of this piece's element missing? */
static bool
element_is_missing(List *pieces, const MessagePiece *of, const SignedMessage *message,
				   const char *id, const char *ts)
{
	ListCell   *cell;
	BytesView	view;

	foreach(cell, pieces)
	{
		MessagePiece *piece = lfirst(cell);

		if (piece->element == of->element && !piece_bytes(piece, message, id, ts, &view))
			return true;
	}
	return false;
}

/* The message's parts; their number. */
static int
build_message(const SignatureSpec *spec, const SignedMessage *message, const char *id,
			  const char *ts, BytesView *parts)
{
	ListCell   *cell;
	int			count = 0;

	foreach(cell, spec->message)
	{
		MessagePiece *piece = lfirst(cell);

		if (piece->optional && element_is_missing(spec->message, piece, message, id, ts))
			continue;
		(void) piece_bytes(piece, message, id, ts, &parts[count++]);
	}
	return count;
}

/* The key's bytes; their number, or -1 when the secret has another form. */
static int
secret_bytes(const SignatureSpec *spec, const char *secret, unsigned char **key)
{
	size_t		length;

	if (spec->key_strip != NULL && strncmp(secret, spec->key_strip, strlen(spec->key_strip)) == 0)
		secret += strlen(spec->key_strip);
	length = strlen(secret);
	*key = palloc(length + 1);
	switch (spec->key_form)
	{
		case KEY_FORM_TEXT:
			memcpy(*key, secret, length);
			return length;
		case KEY_FORM_HEX:
			return payguard_hex_decode(secret, length, *key, length);
		case KEY_FORM_BASE64:
			return payguard_base64_decode(secret, length, *key, length);
	}
	return -1;
}

/* Does any of the claimed signatures agree with this secret's? */
static bool
any_signature_agrees(const SignatureSpec *spec, const char *secret, const BytesView *parts,
					 int count, const Claims *claims)
{
	unsigned char code[SIGNATURE_MAX_SIZE];
	char text[	2 * SIGNATURE_MAX_SIZE + 8];
	unsigned char *key;
	int			key_length = secret_bytes(spec, secret, &key);
	size_t		length;
	bool		agrees = false;
	int			i;

	if (key_length <= 0)
		return false;
	length = payguard_hmac(spec->algorithm, key, key_length, parts, count, code);
	memset(key, 0, key_length);
	if (length == 0)
		return false;
	if (spec->base64)
		payguard_base64_encode(code, length, text);
	else
		payguard_hex_encode(code, length, text);
	for (i = 0; i < claims->count; i++)
		if (payguard_equal_constant_time(text, strlen(text), claims->signatures[i],
										 strlen(claims->signatures[i])))
			agrees = true;
	return agrees;
}

/* NULL when the time is inside the tolerance. */
static const char *
check_clock(const SignatureSpec *spec, const char *ts, int64 now)
{
	int64		time;
	int64		age;

	if (spec->tolerance == 0)
		return NULL;
	if (!payguard_time_read_unix(ts, spec->ts_unit, &time))
		return "the signature's time is not a number";
	age = now - time;

	/* Whole seconds, as the gateways' own libraries count. */
	if (age / 1000000 > spec->tolerance)
		return "the signature is too old";
	if (!spec->past_only && -age / 1000000 > spec->tolerance)
		return "the signature's time is in the future";
	return NULL;
}

/*
 * NULL when the signature is good, else why not.  The signature is checked
 * before the time, so that "too old" is only said to those who hold the secret.
 */
const char *
payguard_signature_check(const SignatureSpec *spec, List *secrets, const SignedMessage *message)
{
	Taken		from;
	Claims		claims;
	const char *id = NULL;
	BytesView	parts[MAX_PIECES + 1];
	ListCell   *cell;
	bool		agrees = false;
	int			count;

	if (spec->none)
		return NULL;
	memset(&claims, 0, sizeof(claims));
	from = payguard_source_take(spec->from, message->scope);
	if (from.ambiguous || from.text == NULL)
		return from.ambiguous ? "the signature is there twice" : "the signature is missing";
	if (!read_claims(spec, from.text, &claims))
		return "the signature is malformed or of another kind";
	if (spec->ts != NULL)
		claims.ts = payguard_source_take(spec->ts, message->scope).text;
	if ((spec->ts != NULL || spec->ts_name != NULL) && claims.ts == NULL)
		return "the signature's time is missing";
	if (spec->id != NULL)
	{
		id = payguard_source_take(spec->id, message->scope).text;
		if (id == NULL)
			return "the message's id is missing";
	}

	count = build_message(spec, message, id, claims.ts, parts);
	foreach(cell, secrets)
		if (any_signature_agrees(spec, lfirst(cell), parts, count, &claims))
		agrees = true;
	if (!agrees)
		return "the signature does not agree with any secret";
	return claims.ts != NULL ? check_clock(spec, claims.ts, message->now) : NULL;
}
