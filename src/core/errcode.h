/*-------------------------------------------------------------------------
 *
 * errcode.h
 *	  The SQLSTATEs of class PG.
 *
 * They report misuse only; business outcomes are return values.  The list
 * is a contract, explained for users in doc/errors.md.  The macros expand to
 * MAKE_SQLSTATE(), so only files that include postgres.h can use them.
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAYGUARD_ERRCODE_H
#define PAYGUARD_ERRCODE_H

/* a key or reference came again with other parameters */
#define ERRCODE_PAYGUARD_KEY_REUSED			MAKE_SQLSTATE('P','G','0','0','1')
/* there is no order of that reference */
#define ERRCODE_PAYGUARD_NO_SUCH_ORDER		MAKE_SQLSTATE('P','G','0','0','2')
/* the state machine does not list that move */
#define ERRCODE_PAYGUARD_TRANSITION			MAKE_SQLSTATE('P','G','0','0','3')
/* the gateway is not configured for what was asked */
#define ERRCODE_PAYGUARD_GATEWAY			MAKE_SQLSTATE('P','G','0','0','4')
/* the lease has lapsed or the token is not recognized */
#define ERRCODE_PAYGUARD_LEASE				MAKE_SQLSTATE('P','G','0','0','5')
/* a refund asks for more than what is left */
#define ERRCODE_PAYGUARD_REFUND_EXCEEDS		MAKE_SQLSTATE('P','G','0','0','6')
/* an argument carries card data */
#define ERRCODE_PAYGUARD_CARD_DATA			MAKE_SQLSTATE('P','G','0','0','7')
/* an adapter document is not valid */
#define ERRCODE_PAYGUARD_ADAPTER			MAKE_SQLSTATE('P','G','0','0','8')
/* this copy of the ledger has not been adopted */
#define ERRCODE_PAYGUARD_NOT_ADOPTED		MAKE_SQLSTATE('P','G','0','0','9')

#endif							/* PAYGUARD_ERRCODE_H */
