/*-------------------------------------------------------------------------
 *
 * nearest.c
 *	  Finds the word that somebody may have meant.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "gateway/adapter.h"
#include "utils/varlena.h"

/* More changes than this are no typing error. */
#define MAX_DISTANCE	4
#define MAX_LENGTH		255

/*
 * The candidate that is nearest to the word, or NULL when none is near: at
 * most MAX_DISTANCE changes, and fewer than half of the word.
 */
const char *
payguard_nearest_word(const char *word, const char *const *candidates, int count)
{
	const char *best = NULL;
	int			best_distance = MAX_DISTANCE + 1;
	int			length = strlen(word);
	int			i;

	if (length == 0 || length > MAX_LENGTH)
		return NULL;
	for (i = 0; i < count; i++)
	{
		int			distance;

		distance = varstr_levenshtein_less_equal(word, length, candidates[i],
												 strlen(candidates[i]), 1, 1, 1,
												 MAX_DISTANCE, true);
		if (distance < best_distance && distance <= MAX_DISTANCE && distance * 2 <= length)
		{
			best = candidates[i];
			best_distance = distance;
		}
	}
	return best;
}
