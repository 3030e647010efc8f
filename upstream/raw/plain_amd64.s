#include "textflag.h"

// With its second bit turned, a quote is a space, and control characters stay what they are: a byte is one of them if the least of it and a space is itself.
#define LOOK(x, t) \
	PXOR    X0, x  \
	MOVOA   x, t   \
	PMINUB  X1, t  \
	PCMPEQB x, t   \
	PCMPEQB X2, x  \
	POR     t, x

// func plainBlocks(b []byte, i int) int
TEXT ·plainBlocks(SB), NOSPLIT, $0-40
	MOVQ b_base+0(FP), SI
	MOVQ b_len+8(FP), DX
	MOVQ i+24(FP), AX
	MOVQ $0x0202020202020202, CX // the second bit
	MOVQ CX, X0
	PUNPCKLQDQ X0, X0
	MOVQ $0x2020202020202020, CX // spaces
	MOVQ CX, X1
	PUNPCKLQDQ X1, X1
	MOVQ $0x5e5e5e5e5e5e5e5e, CX // backslashes, turned
	MOVQ CX, X2
	PUNPCKLQDQ X2, X2
	SUBQ $64, DX                 // where the last block may begin

next:
	CMPQ  AX, DX
	JGT   done
	MOVOU 0(SI)(AX*1), X3
	MOVOU 16(SI)(AX*1), X4
	MOVOU 32(SI)(AX*1), X5
	MOVOU 48(SI)(AX*1), X6
	LOOK(X3, X7)
	LOOK(X4, X8)
	LOOK(X5, X9)
	LOOK(X6, X10)
	POR   X4, X3
	POR   X6, X5
	POR   X5, X3
	PMOVMSKB X3, CX
	TESTL CX, CX
	JNE   done
	ADDQ  $64, AX
	JMP   next

done:
	MOVQ AX, ret+32(FP)
	RET
