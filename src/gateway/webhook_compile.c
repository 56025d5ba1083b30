/*-------------------------------------------------------------------------
 *
 * webhook_compile.c
 *	  The webhook of an adapter, compiled from its document.
 *
 * Callbacks that nobody signs may only point at something to ask about; a
 * document that lets them decide is refused here.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "gateway/adapter.h"

/* A list of items, and where in its elements the item is ("/items" star "/item"). */
static void
compile_items(const Place *place, WebhookSpec *webhook)
{
	const char *text = payguard_place_string(place);
	const char *star = strstr(text, "/*");

	if (star == NULL)
		star = text +strlen(text);

	webhook->items = payguard_json_pointer(pnstrdup(text, star - text));
	if (webhook->items != NULL && *star != '\0' && star[2] != '\0')
	{
		webhook->item = payguard_json_pointer(star + 2);
		if (webhook->item == NULL)
			webhook->items = NULL;
	}
	if (webhook->items == NULL)
		payguard_place_refuse(place, "a JSON pointer to a list, such as \"/items\" or \"/items/*/item\"");
}

static void
compile_acknowledgement(const Place *webhook_place, WebhookSpec *webhook)
{
	static const char *const names[] = {"http", "body"};
	Place		answer;
	Place		member;

	webhook->ack_status = 200;
	webhook->ack_body = "";
	webhook->refuse_status = 400;
	if (payguard_place_find(webhook_place, "ack", &answer))
	{
		payguard_place_check_members(&answer, names, lengthof(names));
		if (payguard_place_find(&answer, "http", &member))
			webhook->ack_status = payguard_place_integer(&member, 200, 299);
		if (payguard_place_find(&answer, "body", &member) && member.node->kind == JSON_KIND_STRING)
			webhook->ack_body = member.node->text;
	}
	if (payguard_place_find(webhook_place, "refuse", &answer))
	{
		payguard_place_check_members(&answer, names, 1);
		if (payguard_place_find(&answer, "http", &member))
			webhook->refuse_status = payguard_place_integer(&member, 400, 599);
	}
}

/* Compile the document's member "webhook". */
WebhookSpec *
payguard_webhook_compile(const Place *place)
{
	static const char *const names[] = {
		"content", "items", "signature", "take", "rules", "trust", "ack", "refuse"
	};
	static const Word contents[] = {{"json", false}, {"form", true}, {NULL, 0}};
	static const Word trusts[] = {{"status", false}, {"hint", true}, {NULL, 0}};
	WebhookSpec *webhook = palloc0(sizeof(WebhookSpec));
	Place		member;

	payguard_place_check_members(place, names, lengthof(names));
	if (payguard_place_find(place, "content", &member))
		webhook->is_form = payguard_place_word(&member, "form", contents);
	if (payguard_place_find(place, "items", &member))
		compile_items(&member, webhook);
	if (payguard_place_find(place, "trust", &member))
		webhook->is_hint = payguard_place_word(&member, "word", trusts);
	if (!payguard_place_find(place, "signature", &member))
		payguard_place_refuse(place, "a member \"signature\"");
	webhook->signature = payguard_signature_compile(&member);
	if (webhook->signature.none && !webhook->is_hint)
		payguard_place_refuse(&member, "\"trust\": \"hint\" for callbacks that nobody signs");
	if (!payguard_place_find(place, "take", &member))
		payguard_place_refuse(place, "a member \"take\"");
	payguard_take_compile(&member, &webhook->take);
	if (!payguard_place_find(place, "rules", &member))
		payguard_place_refuse(place, "a member \"rules\"");
	webhook->rules = payguard_rules_compile(&member, RULES_OF_WEBHOOK, &webhook->take);
	compile_acknowledgement(place, webhook);
	return webhook;
}
