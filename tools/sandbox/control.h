/*-------------------------------------------------------------------------
 *
 * control.h
 *	  The interface for tests, below /_sandbox/.
 *
 *-------------------------------------------------------------------------
 */
#ifndef CONTROL_H
#define CONTROL_H

#include "api.h"

#define CONTROL_PREFIX "/_sandbox/"

extern void control_answer(const Call *call, Answer *answer);

#endif							/* CONTROL_H */
