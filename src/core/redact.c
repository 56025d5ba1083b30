/*-------------------------------------------------------------------------
 *
 * redact.c
 *	  Finds and masks card numbers and card verification values.
 *
 * A card number is a run of 13 to 19 digits, perhaps grouped by blanks or by
 * dashes, whose length and prefix a card scheme has given out and whose check
 * digit is right.  A run inside a longer word of letters and digits is an
 * identifier and left alone; letters outside ASCII do not make a word, so
 * that a number that follows Chinese text is found.  UUIDs and the decimals
 * of a fraction are no card numbers, whatever digits chance gave them: a
 * request key must not be refused one time in a hundred thousand.
 *
 *-------------------------------------------------------------------------
 */
#include "core/redact.h"

#include <string.h>

#define CARD_MIN_DIGITS 13
#define CARD_MAX_DIGITS 19
/* digits with a separator before each but the first */
#define CARD_MAX_TEXT	(2 * CARD_MAX_DIGITS)
#define UUID_TEXT		36

/* Ranges of leading digits that schemes issue, with the lengths in use. */
static const struct
{
	int			digits;			/* how many leading digits are compared */
	int			low;
	int			high;
	int			min_length;
	int			max_length;
}			schemes[] = {
	{1, 4, 4, 16, 16},			/* Visa */
	{1, 4, 4, 13, 13},
	{1, 4, 4, 19, 19},
	{2, 51, 55, 16, 16},		/* Mastercard */
	{4, 2221, 2720, 16, 16},
	{2, 34, 34, 15, 15},		/* American Express */
	{2, 37, 37, 15, 15},
	{2, 62, 62, 16, 19},		/* UnionPay */
	{2, 81, 81, 16, 19},
	{4, 3528, 3589, 16, 19},	/* JCB */
	{4, 6011, 6011, 16, 19},	/* Discover */
	{3, 644, 649, 16, 19},
	{2, 65, 65, 16, 19},
	{3, 300, 305, 14, 16},		/* Diners Club */
	{4, 3095, 3095, 14, 16},
	{2, 36, 36, 14, 16},
	{2, 38, 39, 14, 16},
	{4, 5018, 5018, 13, 19},	/* Maestro */
	{4, 5020, 5020, 13, 19},
	{4, 5038, 5038, 13, 19},
	{4, 5893, 5893, 13, 19},
	{4, 6304, 6304, 13, 19},
	{4, 6759, 6763, 13, 19},
	{4, 2200, 2205, 16, 19},	/* Mir */
	{4, 9792, 9792, 16, 16},	/* Troy */
	{2, 60, 60, 16, 16},		/* RuPay, Hipercard */
	{2, 82, 82, 16, 16},
	{3, 508, 508, 16, 16},
	{4, 5067, 5067, 16, 16},	/* Elo */
	{4, 6362, 6363, 16, 16}
};

static bool
is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool
is_word(char c)
{
	return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* Does a scheme issue numbers of this length that begin like this? */
static bool
is_issued(const char *digits, int count)
{
	size_t		i;

	for (i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++)
	{
		int			prefix = 0;
		int			j;

		if (count < schemes[i].min_length || count > schemes[i].max_length)
			continue;
		for (j = 0; j < schemes[i].digits; j++)
			prefix = prefix * 10 + (digits[j] - '0');
		if (prefix >= schemes[i].low && prefix <= schemes[i].high)
			return true;
	}
	return false;
}

/* Is the check digit right, and is it no run of one digit? */
static bool
has_check_digit(const char *digits, int count)
{
	int			sum = 0;
	int			i;
	bool		differs = false;

	for (i = 0; i < count; i++)
	{
		int			value = digits[count - 1 - i] - '0';

		if (i % 2 == 1)
		{
			value *= 2;
			if (value > 9)
				value -= 9;
		}
		sum += value;
		if (digits[i] != digits[0])
			differs = true;
	}
	return sum % 10 == 0 && differs;
}

/*
 * Length of the text of a card number that starts at `start` (a digit at a
 * group's beginning), or 0.  All ends of groups are tried, the longest first,
 * because digits that do not belong to it may follow after a blank.
 */
static size_t
card_text_length(const char *text, size_t length, size_t start)
{
	char		digits[CARD_MAX_DIGITS];
	size_t		best = 0;
	size_t		i;
	int			count = 0;
	char		separator = '\0';

	for (i = start; i < length && i - start < CARD_MAX_TEXT; i++)
	{
		bool		at_end;

		if ((text[i] == ' ' || text[i] == '-') &&i + 1 < length && is_digit(text[i + 1]) &&
			(separator == '\0' || separator == text[i]))
		{
			separator = text[i];

			continue;
		}
		if (!is_digit(text[i]) || count == CARD_MAX_DIGITS)
			break;
		digits[count++] = text[i];

		at_end = (i + 1 == length || !is_word(text[i + 1]));
		/* Numbers of 13 digits are rare; lists of small numbers are not. */
		if (at_end && count >= CARD_MIN_DIGITS && (count > CARD_MIN_DIGITS || separator == '\0') &&
			is_issued(digits, count) && has_check_digit(digits, count))
			best = i + 1 - start;
	}
	return best;
}

/* Does a UUID, as a word of its own, start here? */
static bool
is_uuid(const char *text, size_t length, size_t start)
{
	size_t		i;

	if (start + UUID_TEXT > length || (start > 0 && is_word(text[start - 1])) ||
		(start + UUID_TEXT < length && is_word(text[start + UUID_TEXT])))
		return false;
	for (i = 0; i < UUID_TEXT; i++)
	{
		char		c = text[start + i];

		if (i == 8 || i == 13 || i == 18 || i == 23)
		{
			if (c != '-')
				return false;
		}
		else if (!is_digit(c) && !(c >= 'a' && c <= 'f') && !(c >= 'A' && c <= 'F'))
			return false;
	}
	return true;
}

/* Are these the decimals of a fraction ("0.4123...")? */
static bool
is_fraction(const char *text, size_t start)
{
	return start >= 2 && text[start - 1] == '.' && is_digit(text[start - 2]);
}

/* The next card number at or after *position; false when there is none. */
static bool
find_card_number(const char *text, size_t length, size_t *position, size_t *found_length)
{
	size_t		i;

	for (i = *position; i < length; i++)
	{
		if (is_uuid(text, length, i))
		{
			i += UUID_TEXT - 1;
			continue;
		}
		if (!is_digit(text[i]) || (i > 0 && is_word(text[i - 1])) || is_fraction(text, i))
			continue;
		*found_length = card_text_length(text, length, i);
		if (*found_length > 0)
		{
			*position = i;
			return true;
		}
	}
	return false;
}

/* Does the text contain a card number? */
bool
payguard_has_card_number(const char *text, size_t length)
{
	size_t		position = 0;
	size_t		found_length;

	return find_card_number(text, length, &position, &found_length);
}

/* Mask every card number in place: the first six and last four digits stay. */
void
payguard_mask_card_numbers(char *text, size_t length)
{
	size_t		position = 0;
	size_t		found_length;

	while (find_card_number(text, length, &position, &found_length))
	{
		int			total = 0;
		int			seen = 0;
		size_t		i;

		for (i = position; i < position + found_length; i++)
			total += is_digit(text[i]);
		for (i = position; i < position + found_length; i++)
		{
			if (!is_digit(text[i]))
				continue;
			if (seen >= 6 && seen < total - 4)
				text[		i] = '*';

			seen++;
		}
		position += found_length;
	}
}

/*
 * Is this the name of a member that holds a card verification value, a PIN or
 * a magnetic track?  Case, underscores, dashes, dots and blanks do not count;
 * the name as a whole does, so that "cvc_check" (an answer's) is none.
 */
bool
payguard_is_secret_member(const char *name, size_t length)
{
	static const char *const secret[] = {
		"cvv", "cvv2", "cvc", "cvc2", "cvn", "cvn2", "cav2", "csc", "cvvcode", "cvccode",
		"cardcvv", "cardcvc", "cardcvv2", "cardcvc2", "cvvnumber", "cvcnumber",
		"securitycode", "cardsecuritycode", "cardcode", "verificationvalue",
		"cardverificationvalue", "cardverificationcode", "cardverificationnumber",
		"pin", "cardpin", "pinblock", "encryptedpin",
		"track", "track1", "track2", "track3", "track1data", "track2data", "trackdata",
		"magneticstripe", "magstripe", NULL
	};
	char		plain[32];
	size_t		used = 0;
	size_t		i;

	for (i = 0; i < length; i++)
	{
		char		c = name[i];

		if (c == '_' || c == '-' || c == '.' || c == ' ')
			continue;
		if (used + 1 >= sizeof(plain))
			return false;
		plain[used++] = (c >= 'A' && c <= 'Z') ? c + ('a' - 'A') : c;
	}
	plain[used] = '\0';
	for (i = 0; secret[i] != NULL; i++)
		if (strcmp(plain, secret[i]) == 0)
			return true;
	return false;
}
