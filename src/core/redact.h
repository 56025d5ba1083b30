/*-------------------------------------------------------------------------
 *
 * redact.h
 *	  Finds and masks card numbers and card verification values.
 *
 * What an application gives us is refused when it carries one; what a
 * gateway sends is masked and kept.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYGUARD_REDACT_H
#define PAYGUARD_REDACT_H

#include <stdbool.h>
#include <stddef.h>

/* Does the text contain a card number (13-19 digits, Luhn, known prefix)? */
extern bool payguard_has_card_number(const char *text, size_t length);

/* Mask every card number in place: the first six and last four digits stay. */
extern void payguard_mask_card_numbers(char *text, size_t length);

/* Is this the name of a member that holds a card verification value or PIN? */
extern bool payguard_is_secret_member(const char *name, size_t length);

#endif							/* PAYGUARD_REDACT_H */
