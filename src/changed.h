/*
 * changed.h
 *		Triggers: what those who change fairq's tables by SQL owe.
 */
#ifndef FAIRQ_CHANGED_H
#define FAIRQ_CHANGED_H

extern void fairq_watch_drops(void);

#endif							/* FAIRQ_CHANGED_H */
