/*-------------------------------------------------------------------------
 *
 * json.h
 *	  Reads JSON that a gateway or an adapter's author wrote.
 *
 * The server's own reader raises errors, cannot hold \u0000, turns numbers
 * into numeric and forgets duplicate members.  Here an answer that says
 * "paid" must stay readable when a text in it is odd, a number must keep its
 * exact digits, and a member that is there twice must be noticed.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYGUARD_GATEWAY_JSON_H
#define PAYGUARD_GATEWAY_JSON_H

#include "postgres.h"

#include "lib/stringinfo.h"

/* What is larger or deeper is not read. */
#define JSON_MAX_SIZE	(1024 * 1024)
#define JSON_MAX_DEPTH	64

typedef enum JsonKind
{
	JSON_KIND_NULL,
	JSON_KIND_FALSE,
	JSON_KIND_TRUE,
	JSON_KIND_NUMBER,			/* text has the digits as written */
	JSON_KIND_STRING,			/* text has the value; \u0000 stays escaped */
	JSON_KIND_ARRAY,
	JSON_KIND_OBJECT
} JsonKind;

typedef struct JsonNode JsonNode;
struct JsonNode
{
	JsonKind	kind;
	const char *name;			/* within an object */
	const char *text;			/* of a number or string */
	JsonNode   *first;			/* of an array's or object's members */
	JsonNode   *next;			/* sibling */
	int			count;			/* of members */
	const char *raw;			/* where it stands in the input */
	size_t		raw_length;
};

/* A JSON pointer (RFC 6901), taken apart. */
typedef struct JsonPointer
{
	int			count;
	char	  **tokens;
} JsonPointer;

typedef enum JsonLookup
{
	JSON_LOOKUP_ABSENT,			/* not there, or null */
	JSON_LOOKUP_FOUND,
	JSON_LOOKUP_AMBIGUOUS		/* a member on the way is there twice */
} JsonLookup;

/*
 * Read a document.  The input must stay as long as the result's raw members
 * are used.  NULL when it is no JSON (*error then says why, without quoting
 * the input).  Raises no error but out of memory.
 */
extern JsonNode *payguard_json_read(const char *input, size_t length, const char **error);

/* Take a pointer apart; NULL when it is none. */
extern JsonPointer *payguard_json_pointer(const char *text);
extern JsonLookup payguard_json_find(JsonNode *root, const JsonPointer *pointer, JsonNode **found);

/* A member of an object by name, or NULL. */
extern JsonNode *payguard_json_member(const JsonNode *object, const char *name);

/* Text of a string, number, true or false; NULL for all else. */
extern const char *payguard_json_scalar(const JsonNode *node);


/* Append a value as compact JSON. */
extern void payguard_json_write(StringInfo out, const JsonNode *node);

/* The same for what people or the ledger will see: card numbers masked,
 * card verification values dropped. */
extern void payguard_json_write_redacted(StringInfo out, const JsonNode *node);

/* Append text as a JSON string. */
extern void payguard_json_write_text(StringInfo out, const char *text);

#endif							/* PAYGUARD_GATEWAY_JSON_H */
