/*-------------------------------------------------------------------------
 *
 * heap.c
 *	  A queue of items ordered by the time when they are due.
 *
 * A binary heap without a lock: its owner has one.
 *
 *-------------------------------------------------------------------------
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "heap.h"

/* Does a leave before b? */
static bool
before(const HeapEntry *a, const HeapEntry *b)
{
	return a->due < b->due || (a->due == b->due && a->number < b->number);
}

/* Add an item */
void
heap_push(Heap *heap, int64_t due, void *item)
{
	HeapEntry	entry = {due, heap->last++, item};
	size_t		i = heap->count++;

	if (heap->count > heap->room)
	{
		heap->room = heap->room ? heap->room * 2 : 64;
		heap->entries = realloc(heap->entries, heap->room * sizeof(HeapEntry));
		if (heap->entries == NULL)
		{
			perror("payguard-sandbox");
			abort();
		}
	}
	for (; i > 0 && before(&entry, &heap->entries[(i - 1) / 2]); i = (i - 1) / 2)
		heap->entries[i] = heap->entries[(i - 1) / 2];
	heap->entries[i] = entry;
}

/* Take the item that is due first; NULL if there is none */
void *
heap_pop(Heap *heap)
{
	HeapEntry	moved;
	void	   *item;
	size_t		i = 0;

	if (heap->count == 0)
		return NULL;
	item = heap->entries[0].item;
	moved = heap->entries[--heap->count];
	for (;;)
	{
		size_t		child = 2 * i + 1;

		if (child >= heap->count)
			break;
		if (child + 1 < heap->count &&
			before(&heap->entries[child + 1], &heap->entries[child]))
			child++;
		if (!before(&heap->entries[child], &moved))
			break;
		heap->entries[i] = heap->entries[child];
		i = child;
	}
	heap->entries[i] = moved;
	return item;
}

/* When the next item is due; INT64_MAX if there is none */
int64_t
heap_due(const Heap *heap)
{
	return heap->count ? heap->entries[0].due : INT64_MAX;
}
