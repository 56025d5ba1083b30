/*-------------------------------------------------------------------------
 *
 * heap.h
 *	  A queue of items ordered by the time when they are due.
 *
 *-------------------------------------------------------------------------
 */
#ifndef HEAP_H
#define HEAP_H

#include <stddef.h>
#include <stdint.h>

typedef struct HeapEntry
{
	int64_t		due;
	uint64_t	number;			/* items due at one time leave as they came */
	void	   *item;
} HeapEntry;

typedef struct Heap
{
	HeapEntry  *entries;
	size_t		count;
	size_t		room;
	uint64_t	last;
} Heap;

extern void heap_push(Heap *heap, int64_t due, void *item);
extern void *heap_pop(Heap *heap);
extern int64_t heap_due(const Heap *heap);

#endif							/* HEAP_H */
