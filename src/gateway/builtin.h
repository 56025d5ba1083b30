/*-------------------------------------------------------------------------
 *
 * builtin.h
 *	  The adapter documents that are compiled into the library.
 *
 * script/embed-adapters turns adapters/<name>.json into one array, so that
 * a dump holds no built-in document and an update of the library brings new
 * ones.  The documents are text as their files have it: nothing has parsed
 * or checked them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYGUARD_GATEWAY_BUILTIN_H
#define PAYGUARD_GATEWAY_BUILTIN_H

typedef struct PayguardBuiltinAdapter
{
	const char *name;			/* the file's name without .json */
	const char *spec;			/* the document, NUL-terminated UTF-8 */
} PayguardBuiltinAdapter;

/* Sorted by name; the entry after the last has a NULL name. */
extern const PayguardBuiltinAdapter payguard_builtin_adapters[];

#endif							/* PAYGUARD_GATEWAY_BUILTIN_H */
