/* What instructions do with data memory and the return stack, see memory.c. */
#ifndef MEMORY_H
#define MEMORY_H

#include "pic18.h"

uint16_t resolve(pic *p, uint16_t address); /* the place an access really means; moves pointers, so once per access */
uint8_t load(pic *p, uint16_t address);
int store(pic *p, uint16_t address, uint8_t value); /* cycles it costs beyond the instruction's own */
void set_pointer(pic *p, uint16_t low, uint16_t value);
void push(pic *p, uint32_t address);
uint32_t pop(pic *p);

#endif
