/*-------------------------------------------------------------------------
 *
 * fill.c
 *	  From what was taken to the members of Evidence.
 *
 * Only what a document names is kept: this is the allow-list.  Texts are
 * masked and cut; ids are kept whole, or not at all, because an id that was
 * changed would match the wrong thing.  Nothing here raises an error for what
 * a gateway sent.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "core/redact.h"
#include "gateway/adapter.h"
#include "mb/pg_wchar.h"
#include "utils/formatting.h"

#define MAX_ID_LENGTH		255
#define MAX_CODE_LENGTH		100
#define MAX_MESSAGE_LENGTH	500
#define MAX_CLIENT_LENGTH	16384

/* Shorter secrets are no secrets, and words of the language. */
#define MIN_SECRET_LENGTH	8

/* An id, or NULL when it is no usable one. */
static const char *
take_id(const Taken *taken)
{
	const char *p;

	if (taken->text == NULL || taken->text[0] == '\0' || strlen(taken->text) > MAX_ID_LENGTH)
		return NULL;
	for (p = taken->text; *p != '\0'; p++)
		if ((unsigned char) *p < 0x20 || *p == 0x7f)
			return NULL;
	return taken->text;
}

static void
mask_secret(char *text, const char *secret)
{
	size_t		length = secret != NULL ? strlen(secret) : 0;
	char	   *found;

	if (length < MIN_SECRET_LENGTH)
		return;
	for (found = strstr(text, secret); found != NULL; found = strstr(found + length, secret))
		memset(found, '*', length);
}

/* A gateway may repeat what we sent: no key of ours is kept with a fact. */
static void
mask_secrets(char *text, const Gateway *gateway)
{
	ListCell   *cell;

	mask_secret(text, gateway->api_key);
	foreach(cell, gateway->webhook_secrets)
		mask_secret(text, lfirst(cell));
}

/* A text for people: masked, cut at a character's end. */
static const char *
take_words(const Gateway *gateway, const Taken *taken, int max_length)
{
	char	   *text;
	int			length;

	if (taken->text == NULL || taken->text[0] == '\0')
		return NULL;
	length = strlen(taken->text);
	length = pg_encoding_mbcliplen(PG_UTF8, taken->text, length, max_length * 4);
	text = pnstrdup(taken->text, length);

	mask_secrets(text, gateway);
	payguard_mask_card_numbers(text, length);
	length = pg_encoding_mbcliplen(PG_UTF8, text, length, max_length);
	text[		length] = '\0';
	return text;
}

/* The mode as the gateway tells it. */
static GatewayMode
take_mode(const Taken *taken)
{
	if (taken->text == NULL)
		return MODE_NOT_TOLD;
	if (strcmp(taken->text, "true") == 0 || pg_strcasecmp(taken->text, "live") == 0)
		return MODE_LIVE;
	if (strcmp(taken->text, "false") == 0 || pg_strcasecmp(taken->text, "test") == 0)
		return MODE_TEST;
	return MODE_NOT_TOLD;
}

/* A currency in upper case, or NULL when it is none. */
static const char *
take_currency(const Fields *fields)
{
	const char *text = fields->taken[FIELD_CURRENCY].text;

	if (text == NULL || strlen(text) != 3)
		return NULL;
	text = asc_toupper(text, 3);
	return payguard_money_exponent(text) >= 0 ? text : NULL;
}

/*
 * Read an amount of the currency as the adapter writes it.  False when it
 * cannot be represented exactly, and for numbers with an exponent, which no
 * gateway writes for money.
 */
static bool
read_amount(const Adapter *adapter, const char *text, const char *currency, Money *money)
{
	if (text == NULL || currency == NULL)
		return false;
	if (adapter->amount_form == AMOUNT_MINOR)
		return payguard_money_from_minor(text, currency, adapter->decimals, money) == MONEY_OK;
	return payguard_money_parse(text, currency, money) == MONEY_OK;
}

/* The money that was taken; false when it is not there or not exact. */
bool
payguard_money_take(const Adapter *adapter, const Fields *fields, Money *money)
{
	return read_amount(adapter, fields->taken[FIELD_AMOUNT].text, take_currency(fields), money);
}

/* The fee as decimal text in major units; NULL when there is none. */
static const char *
take_fee(const Adapter *adapter, const Fields *fields)
{
	const char *text = fields->taken[FIELD_FEE].text;
	bool		negative;
	char		formatted[MONEY_TEXT_SIZE];
	Money		money;
	const char *digits;

	if (text == NULL || text[0] == '\0' || strlen(text) > 30)
		return NULL;
	negative = (text[0] == '-');
	digits = text +negative;

	if (digits[strspn(digits, "0123456789.")] != '\0' || digits[0] < '0' || digits[0] > '9' ||
		digits[strlen(digits) - 1] == '.' || strchr(digits, '.') != strrchr(digits, '.'))
		return NULL;
	/* Fees may have more decimals than the currency, so they stay as told. */
	if (adapter->amount_form != AMOUNT_MINOR)
		return text;

	if (!read_amount(adapter, digits, take_currency(fields), &money))
		return strspn(digits, "0") == strlen(digits) ? "0" : NULL;
	payguard_money_format(&money, formatted);
	return psprintf("%s%s", negative ? "-" : "", formatted);
}

/* What the page needs: a JSON object, redacted; NULL when it is none. */
static const char *
take_client(const Gateway *gateway, const Taken *taken)
{
	StringInfoData out;

	if (taken->json == NULL || taken->json->kind != JSON_KIND_OBJECT || taken->json->count == 0)
		return NULL;
	initStringInfo(&out);
	payguard_json_write_redacted(&out, taken->json);
	mask_secrets(out.data, gateway);
	return out.len <= MAX_CLIENT_LENGTH ? out.data : NULL;
}

/*
 * The redacted payload: an object of what was taken.  Ids stay whole, all else
 * is masked.
 */
static char *
build_payload(const Gateway *gateway, const Fields *fields)
{
	StringInfoData out;
	bool		first = true;
	int			i;

	initStringInfo(&out);
	appendStringInfoChar(&out, '{');
	for (i = 0; i < FIELD_COUNT; i++)
	{
		const Taken *taken = &fields->taken[i];
		bool		is_id = (i == FIELD_REFERENCE || i == FIELD_PROVIDER_ID ||
							 i == FIELD_CHARGE_ID || i == FIELD_EVENT_ID);
		const char *text = is_id ? take_id(taken) : take_words(gateway, taken, MAX_MESSAGE_LENGTH);

		if (i == FIELD_CLIENT)
			text = take_client(gateway, taken);

		if (text == NULL)
			continue;
		appendStringInfo(&out, "%s\"%s\":", first ? "" : ",", payguard_field_name(i));
		first = false;
		if (i == FIELD_CLIENT)
			appendStringInfoString(&out, text);
		else
			payguard_json_write_text(&out, text);
	}
	appendStringInfoChar(&out, '}');
	return out.data;
}

/*
 * Fill ids, money, texts, time and payload from what was taken.  Reference,
 * source and result are the caller's.
 */
void
payguard_evidence_fill(Evidence *evidence, const Gateway *gateway, const Fields *fields)
{
	const Adapter *adapter = gateway->adapter;
	const Taken *at = &fields->taken[FIELD_OCCURRED_AT];

	evidence->provider_id = take_id(&fields->taken[FIELD_PROVIDER_ID]);
	evidence->charge_id = take_id(&fields->taken[FIELD_CHARGE_ID]);
	evidence->has_money = payguard_money_take(adapter, fields, &evidence->money);
	evidence->mode = take_mode(&fields->taken[FIELD_MODE]);
	evidence->fee = take_fee(adapter, fields);
	evidence->code = take_words(gateway, &fields->taken[FIELD_CODE], MAX_CODE_LENGTH);
	evidence->message = take_words(gateway, &fields->taken[FIELD_MESSAGE], MAX_MESSAGE_LENGTH);
	evidence->client_json = take_client(gateway, &fields->taken[FIELD_CLIENT]);
	evidence->has_occurred_at = at->has_time;
	evidence->occurred_at = at->has_time ? at->time : 0;
	evidence->event_id = take_id(&fields->taken[FIELD_EVENT_ID]);
	evidence->event_type = take_words(gateway, &fields->taken[FIELD_TYPE], MAX_CODE_LENGTH);
	evidence->payload_json = build_payload(gateway, fields);
}
