/*-------------------------------------------------------------------------
 *
 * adapter.h
 *	  A compiled adapter document, and the parts that it is made of.
 *
 * Private to gateway/.  A document is data: everything in it is checked when
 * it is compiled (PG008 with the path), so that rendering a request or reading
 * an answer meets no surprise.  Everything lives in the adapter's own memory
 * context, which stays as long as the backend.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYGUARD_GATEWAY_ADAPTER_H
#define PAYGUARD_GATEWAY_ADAPTER_H

#include "gateway/gateway.h"

#include "core/signature.h"
#include "gateway/json.h"
#include "regex/regex.h"

/* --- document.c: where in a document, and what is wrong there -------------- */

/* A place in a document that is being compiled. */
typedef struct Place
{
	const char *adapter;
	char	   *path;			/* "/ops/charge/body" */
	JsonNode   *node;
} Place;

/* One word and what it stands for; ends with a NULL word. */
typedef struct Word
{
	const char *word;
	int			value;
} Word;

extern Place payguard_place_member(const Place *object, const char *name, JsonNode *node);
extern Place payguard_place_element(const Place *array, int index, JsonNode *node);

/* False when the member is not there or null. */
extern bool payguard_place_find(const Place *object, const char *name, Place *member);

/* PG008: what was expected at this place. */
extern void payguard_place_refuse(const Place *place, const char *expected) pg_attribute_noreturn();

/* PG008 for a member or word that is not one of `words`, naming the nearest. */
extern void payguard_place_refuse_word(const Place *place, const char *what, const char *word,
									   const char *const *words, int count) pg_attribute_noreturn();

/* An object with none but these members. */
extern void payguard_place_check_members(const Place *object, const char *const *names, int count);
extern const char *payguard_place_string(const Place *place);
extern int	payguard_place_word(const Place *place, const char *what, const Word *words);
extern bool payguard_place_boolean(const Place *place);
extern int	payguard_place_integer(const Place *place, int low, int high);
extern int64 payguard_place_duration(const Place *place);

/* --- duration.c ------------------------------------------------------------- */

/* "10s", "2 min", "24 hours", "500ms"; microseconds, or -1. */
extern int64 payguard_duration_read(const char *text);

/* --- nearest.c: which word was meant? --------------------------------------- */

/* The candidate that is nearest to the word, or NULL when none is near. */
extern const char *payguard_nearest_word(const char *word, const char *const *candidates, int count);

/* --- template.c: text with variables ---------------------------------------- */

typedef enum Variable
{
	VARIABLE_NONE,				/* plain text */
	VARIABLE_REFERENCE,
	VARIABLE_ORDER_REFERENCE,
	VARIABLE_IDEMPOTENCY_KEY,
	VARIABLE_AMOUNT,
	VARIABLE_CURRENCY,
	VARIABLE_PROVIDER_ID,
	VARIABLE_CHARGE_REFERENCE,
	VARIABLE_CHARGE_ID,
	VARIABLE_ATTEMPT_NO,
	VARIABLE_WEBHOOK_URL,
	VARIABLE_API_USER,			/* in auth only */
	VARIABLE_API_KEY,			/* in auth only */
	VARIABLE_PAYMENT,			/* the whole object */
	VARIABLE_PAYMENT_MEMBER
} Variable;

typedef struct Segment
{
	Variable	variable;
	char	   *text;			/* plain text, or the member's name */
	struct Segment *next;
} Segment;

typedef struct Template
{
	Segment    *first;
	unsigned	variables;		/* bits 1 << Variable */
} Template;

/* A body: a tree whose leaves are templates or literal JSON. */
typedef struct BodyNode
{
	JsonKind	kind;			/* STRING: a template; others literal or
								 * container */
	const char *name;
	Template   *template;
	const char *literal;
	struct BodyNode *first;
	struct BodyNode *next;
} BodyNode;

/* Compile the string at this place; only variables in `allowed` may be named. */
extern Template *payguard_template_compile(const Place *place, unsigned allowed);
extern BodyNode *payguard_body_compile(const Place *place, bool flat);
extern unsigned payguard_body_variables(const BodyNode *body);

/* What templates are filled from. */
typedef struct RenderScope
{
	const Gateway *gateway;
	const CallFacts *facts;
} RenderScope;

/* How a value is written into its surroundings. */
typedef enum TemplateUse
{
	TEMPLATE_USE_TEXT,			/* as it is */
	TEMPLATE_USE_PATH			/* percent-encoded */
} TemplateUse;

/* The variables that a call has no value for. */
extern unsigned payguard_template_missing(const RenderScope *scope, unsigned variables);

/* Text, or NULL when a variable has no value. */
extern char *payguard_template_text(const RenderScope *scope, const Template *template,
									TemplateUse use);

/* Value as JSON, or false when a variable has no value. */
extern bool payguard_template_json(const RenderScope *scope, const Template *template,
								   StringInfo out);

/* Name of a variable, for messages. */
extern const char *payguard_variable_name(unsigned variables);
extern void payguard_percent_encode(StringInfo out, const char *text, bool blank_as_plus);

/* --- source.c: where a value comes from -------------------------------------- */

typedef struct Source Source;

/* A name and its value, of headers and forms. */
typedef struct NameValue
{
	const char *name;
	const char *value;
} NameValue;

/* What sources look into.  Any part may be missing. */
typedef struct ReadScope
{
	JsonNode   *json;
	List	   *headers;		/* of NameValue *; names compared without case */
	List	   *form;			/* of NameValue *, decoded */
	List	   *query;			/* of NameValue *, decoded, from the URL */
	int			http_status;
} ReadScope;

/* A value that was found. */
typedef struct Taken
{
	bool		present;
	bool		ambiguous;		/* it is there twice: nobody knows which
								 * counts */
	const char *text;			/* NULL for an object or array */
	JsonNode   *json;			/* when it came from JSON as it is */
	bool		has_time;
	int64		time;			/* microseconds since 2000 */
} Taken;

/* Compile one expression or a list of which the first that exists counts. */
extern Source *payguard_source_compile(const Place *place);
extern Taken payguard_source_take(const Source *source, const ReadScope *scope);
extern bool payguard_source_is_time(const Source *source);

/* Decode application/x-www-form-urlencoded. */
extern List *payguard_form_read(const char *text, size_t length);

/* Raw header lines as NameValue *. */
extern List *payguard_headers_read(const char *raw, size_t length);
extern const char *payguard_header_find(List *headers, const char *name);

/* RFC 3339, HTTP dates, counts of `unit` microseconds since 1970; false for
 * other text. */
extern bool payguard_time_read_rfc3339(const char *text, int64 *time);
extern bool payguard_time_read_http(const char *text, int64 *time);
extern bool payguard_time_read_unix(const char *text, int64 unit, int64 *time);

/* --- rule.c: what an answer means --------------------------------------------- */

/* The fields that `take` may name. */
typedef enum Field
{
	FIELD_REFERENCE,
	FIELD_PROVIDER_ID,
	FIELD_CHARGE_ID,
	FIELD_STATUS,
	FIELD_TYPE,
	FIELD_AMOUNT,
	FIELD_CURRENCY,
	FIELD_CODE,
	FIELD_MESSAGE,
	FIELD_CLIENT,
	FIELD_FEE,
	FIELD_OCCURRED_AT,
	FIELD_MODE,
	FIELD_EVENT_ID
} Field;

#define FIELD_COUNT	14

typedef struct Take
{
	Source	   *sources[FIELD_COUNT];	/* NULL: not taken */
} Take;

typedef struct Fields
{
	Taken		taken[FIELD_COUNT];
} Fields;

typedef enum ConditionTest
{
	CONDITION_IS_ONE_OF,
	CONDITION_PRESENT,
	CONDITION_ABSENT
} ConditionTest;

typedef struct HttpRange
{
	int			low;
	int			high;
} HttpRange;

typedef struct Condition
{
	int			field;			/* Field, or -1: see http and source */
	bool		is_http;
	Source	   *source;
	ConditionTest test;
	int			count;
	const char **values;
	HttpRange  *ranges;
} Condition;

typedef struct Rule
{
	int			count;
	Condition  *conditions;
	bool		ignore;			/* webhooks: means nothing here */
	EvidenceResult result;
	bool		about_refund;
	bool		review;
	bool		echo;			/* the answer must name our reference */
	const char *code;
	Take		take;			/* taken in place of the op's when the rule
								 * matched */
	struct Rule *next;
} Rule;

/* Where rules stand decides which results they may have. */
typedef enum RulePlace
{
	RULES_OF_CHARGE,
	RULES_OF_REFUND,
	RULES_OF_WEBHOOK
} RulePlace;

extern void payguard_take_compile(const Place *place, Take *take);
extern Rule *payguard_rules_compile(const Place *place, RulePlace rule_place, const Take *take);
extern void payguard_fields_take(const Take *take, const ReadScope *scope, Fields *fields);

/* The first rule that matches, or NULL; takes the rule's own fields. */
extern const Rule *payguard_rules_match(const Rule *rules, const ReadScope *scope, Fields *fields);

/* Does any rule name this type? */
extern bool payguard_rules_know_type(const Rule *rules, const char *type);
extern const char *payguard_field_name(Field field);
extern HttpRange *payguard_ranges_compile(const Place *place, int *count);
extern bool payguard_ranges_include(const HttpRange *ranges, int count, int status);

/* --- verify.c: signatures of callbacks -------------------------------------------- */

typedef enum KeyForm
{
	KEY_FORM_TEXT,
	KEY_FORM_HEX,
	KEY_FORM_BASE64
} KeyForm;

typedef enum SignatureParse
{
	SIGNATURE_PARSE_PLAIN,		/* the value is the signature */
	SIGNATURE_PARSE_KV,			/* t=1,v1=ab,v1=cd */
	SIGNATURE_PARSE_LIST		/* v1,ab v1,cd */
} SignatureParse;

typedef enum MessagePart
{
	MESSAGE_TEXT,
	MESSAGE_BODY,
	MESSAGE_URL,
	MESSAGE_ID,
	MESSAGE_TIMESTAMP,
	MESSAGE_SOURCE
} MessagePart;

typedef struct MessagePiece
{
	MessagePart part;
	const char *text;
	Source	   *source;
	int			element;		/* pieces of one element vanish together */
	bool		optional;
} MessagePiece;

typedef struct SignatureSpec
{
	bool		none;			/* not signed: hints only */
	SignatureAlgorithm algorithm;
	KeyForm		key_form;
	const char *key_strip;
	Source	   *from;
	bool		by_item;		/* each item of a batch carries its own */
	SignatureParse parse;
	const char *sig;			/* name of the signatures in kv and list */
	const char *ts_name;		/* name of the time in kv */
	Source	   *ts;
	Source	   *id;
	bool		base64;			/* else hex */
	int			tolerance;		/* seconds; 0: no clock */
	bool		past_only;
	int64		ts_unit;		/* microseconds in one unit of ts */
	List	   *message;		/* of MessagePiece * */
} SignatureSpec;

typedef struct WebhookSpec
{
	bool		is_form;
	JsonPointer *items;			/* NULL: the body is the item */
	JsonPointer *item;			/* within an element; NULL: the element */
	SignatureSpec signature;
	Take		take;
	Rule	   *rules;
	bool		is_hint;		/* trust: hint */
	int			ack_status;
	const char *ack_body;
	int			refuse_status;
} WebhookSpec;

extern SignatureSpec payguard_signature_compile(const Place *place);
extern WebhookSpec *payguard_webhook_compile(const Place *place);

/* What a signature is checked against. */
typedef struct SignedMessage
{
	const ReadScope *scope;
	const char *body;
	size_t		body_length;
	const char *url;
	int64		now;
} SignedMessage;

/* NULL when it is good, else why not (for people; repeats nothing secret). */
extern const char *payguard_signature_check(const SignatureSpec *spec, List *secrets,
											const SignedMessage *message);

/* --- the adapter --------------------------------------------------------------------- */

typedef enum ContentForm
{
	CONTENT_NONE,
	CONTENT_JSON,
	CONTENT_FORM,
	CONTENT_QUERY
} ContentForm;

typedef enum AnswerForm
{
	ANSWER_JSON,
	ANSWER_FORM,
	ANSWER_HEADERS				/* the body means nothing */
} AnswerForm;

typedef struct HeaderTemplate
{
	const char *name;
	Template   *value;
} HeaderTemplate;

/* One way to make a call; a query may have several, the first whose
 * variables are known is used. */
typedef struct Operation
{
	const char *method;
	Template   *path;
	ContentForm content;
	List	   *headers;		/* of HeaderTemplate * */
	BodyNode   *body;			/* NULL: none */
	unsigned	variables;		/* of path and body */
	AnswerForm	answer;
	Take		take;
	Rule	   *rules;
	HttpRange  *retry_ranges;
	int			retry_count;
	const char *retry_header;
	struct Operation *next;
} Operation;

typedef enum AuthKind
{
	AUTH_NONE,
	AUTH_BEARER,
	AUTH_BASIC,
	AUTH_HEADER,
	AUTH_FORM
} AuthKind;

typedef enum KeyPlace
{
	KEY_PLACE_NONE,
	KEY_PLACE_HEADER,
	KEY_PLACE_BODY
} KeyPlace;

typedef enum AmountForm
{
	AMOUNT_MINOR,				/* a count of minor units */
	AMOUNT_DECIMAL,				/* text in major units */
	AMOUNT_NUMBER				/* a JSON number in major units */
} AmountForm;

/* Ways out of "unknown", as bits */
#define STRATEGY_QUERY_ID			0x01
#define STRATEGY_QUERY_REFERENCE	0x02
#define STRATEGY_REPLAY				0x04
#define STRATEGY_CLOSE				0x08
#define STRATEGY_WEBHOOK			0x10

struct Adapter
{
	const char *name;
	bool		charge_by_application;

	AuthKind	auth;
	const char *auth_header;	/* of AUTH_HEADER */
	Template   *auth_value;
	List	   *auth_fields;	/* of AUTH_FORM: HeaderTemplate * */

	const char *reference_pattern;
	regex_t		reference_regex;
	bool		reference_unique;
	const char *retry_suffix;

	KeyPlace	key_place;
	const char *key_name;
	bool		key_quoted;		/* as a structured-field string */
	int64		key_live;
	const char *replayed_header;

	AmountForm	amount_form;
	int			decimals;		/* -1: the currency's own */
	bool		currency_lower;

	Operation  *ops[CALL_OP_COUNT];

	unsigned	strategies;
	int64		not_found_settles;
	bool		not_found_is_proof;

	WebhookSpec *webhook;		/* NULL: none */
	JsonNode   *settlement;		/* as given */
};

/* Compile a document in the current memory context; PG008. */
extern Adapter *payguard_adapter_compile(const char *name, const char *spec, size_t length);

/* The compiled adapter of that name, cached; NULL when there is none. */
extern const Adapter *payguard_adapter_get(const char *name);

/* A known name that is near this one, or NULL. */
extern const char *payguard_adapter_nearest(const char *name);
extern Operation *payguard_operation_compile(const Place *place, CallOp kind);

/* The way to make this call with these facts, or NULL. */
extern const Operation *payguard_operation_choose(const Gateway *gateway, const CallFacts *facts);

/* Traits that follow from the document alone. */
extern void payguard_adapter_traits(const Adapter *adapter, GatewayTraits *traits);

/* Money as an adapter writes it; false when it cannot be represented. */
extern bool payguard_money_take(const Adapter *adapter, const Fields *fields, Money *money);

/* Evidence's members from what was taken: ids, money, texts, payload. */
extern void payguard_evidence_fill(Evidence *evidence, const Gateway *gateway,
								   const Fields *fields);

#endif							/* PAYGUARD_GATEWAY_ADAPTER_H */
