/*-------------------------------------------------------------------------
 *
 * document.c
 *	  Walks an adapter document and says exactly what is wrong with it.
 *
 * Every refusal is PG008 and names the path, what was expected there and, for
 * a word, the nearest valid one.  A document holds no secrets, so a value of
 * it may be repeated.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "core/errcode.h"
#include "gateway/adapter.h"

/* The place of a member of an object. */
Place
payguard_place_member(const Place *object, const char *name, JsonNode *node)
{
	Place		member = *object;

	member.path = psprintf("%s/%s", object->path, name);
	member.node = node;
	return member;
}

/* The place of an element of an array. */
Place
payguard_place_element(const Place *array, int index, JsonNode *node)
{
	Place		element = *array;

	element.path = psprintf("%s/%d", array->path, index);
	element.node = node;
	return element;
}

/* Find a member; false when it is not there or null. */
bool
payguard_place_find(const Place *object, const char *name, Place *member)
{
	JsonNode   *node = payguard_json_member(object->node, name);

	if (node == NULL || node->kind == JSON_KIND_NULL)
		return false;
	*member = payguard_place_member(object, name, node);
	return true;
}

/* Refuse the document: "expected" completes the sentence. */
void
payguard_place_refuse(const Place *place, const char *expected)
{
	ereport(ERROR,
			(errcode(ERRCODE_PAYGUARD_ADAPTER),
			 errmsg("adapter \"%s\" is not valid at \"%s\"", place->adapter,
					place->path[0] == '\0' ? "/" : place->path),
			 errdetail("Expected %s.", expected)));
}

/* Refuse a word that is not one of the valid ones. */
void
payguard_place_refuse_word(const Place *place, const char *what, const char *word,
						   const char *const *words, int count)
{
	const char *nearest = payguard_nearest_word(word, words, count);
	StringInfoData list;
	int			i;

	initStringInfo(&list);
	for (i = 0; i < count; i++)
		appendStringInfo(&list, "%s%s", i == 0 ? "" : ", ", words[i]);
	ereport(ERROR,
			(errcode(ERRCODE_PAYGUARD_ADAPTER),
			 errmsg("adapter \"%s\" is not valid at \"%s\"", place->adapter,
					place->path[0] == '\0' ? "/" : place->path),
			 errdetail("Unrecognized %s \"%s\".  Expected one of: %s.", what, word, list.data),
			 nearest ? errhint("Perhaps you meant \"%s\".", nearest) : 0));
}

/* An object that has none but these members, and none of them twice. */
void
payguard_place_check_members(const Place *object, const char *const *names, int count)
{
	JsonNode   *member;
	JsonNode   *other;
	int			i;

	if (object->node->kind != JSON_KIND_OBJECT)
		payguard_place_refuse(object, "an object");
	for (member = object->node->first; member != NULL; member = member->next)
	{
		for (i = 0; i < count; i++)
			if (strcmp(names[i], member->name) == 0)
				break;
		if (i == count)
			payguard_place_refuse_word(object, "member", member->name, names, count);
		for (other = member->next; other != NULL; other = other->next)
			if (strcmp(other->name, member->name) == 0)
				payguard_place_refuse(object, psprintf("member \"%s\" only once", member->name));
	}
}

/* A string that is not empty. */
const char *
payguard_place_string(const Place *place)
{
	if (place->node->kind != JSON_KIND_STRING || place->node->text[0] == '\0')
		payguard_place_refuse(place, "a string that is not empty");
	return place->node->text;
}

/* One of these words; returns its value. */
int
payguard_place_word(const Place *place, const char *what, const Word *words)
{
	const char *text = payguard_place_string(place);
	const char *names[32];
	int			count;

	for (count = 0; words[count].word != NULL; count++)
	{
		if (strcmp(words[count].word, text) == 0)
			return words[count].value;
		names[count] = words[count].word;
	}
	payguard_place_refuse_word(place, what, text, names, count);
}

bool
payguard_place_boolean(const Place *place)
{
	if (place->node->kind != JSON_KIND_TRUE && place->node->kind != JSON_KIND_FALSE)
		payguard_place_refuse(place, "true or false");
	return place->node->kind == JSON_KIND_TRUE;
}

int
payguard_place_integer(const Place *place, int low, int high)
{
	const char *text = place->node->text;

	if (place->node->kind != JSON_KIND_NUMBER ||
		strspn(text, "0123456789") != strlen(text) || strlen(text) > 9 ||
		atoi(text) < low || atoi(text) > high)
		payguard_place_refuse(place, psprintf("a whole number from %d to %d", low, high));
	return atoi(text);
}

/* A duration with its unit, in microseconds. */
int64
payguard_place_duration(const Place *place)
{
	int64		duration = payguard_duration_read(payguard_place_string(place));

	if (duration < 0)
		payguard_place_refuse(place, "a duration such as \"60s\", \"15 min\" or \"24 hours\"");
	return duration;
}
