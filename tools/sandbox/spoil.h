/*-------------------------------------------------------------------------
 *
 * spoil.h
 *	  Faults as answers.
 *
 *-------------------------------------------------------------------------
 */
#ifndef SPOIL_H
#define SPOIL_H

#include "answer.h"
#include "faults.h"

extern bool spoil_before(const FaultPlan *plan, Answer *answer);
extern void spoil_after(const FaultPlan *plan, Answer *answer);

#endif							/* SPOIL_H */
