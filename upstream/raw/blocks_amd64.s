#include "textflag.h"

// What may follow a backslash and ends the escape, "\/bfnrt: the byte whose two halves, looked up in these two tables, have a bit in common.
DATA lower<>+0(SB)/8, $0x00040008000d0000
DATA lower<>+8(SB)/8, $0x0104000200000000
GLOBL lower<>(SB), RODATA|NOPTR, $16
DATA upper<>+0(SB)/8, $0x0804020000010000
DATA upper<>+8(SB)/8, $0x0000000000000000
GLOBL upper<>(SB), RODATA|NOPTR, $16

// LOOK finds what is not plain in x. With its second bit turned, a quote is a space, and control characters stay what they are: a byte is one of them if the least of it
// and a space is itself. ends gets quotes and control characters, slashes the backslashes.
#define LOOK(x, ends, slashes) \
	VPXOR    Y0, x, slashes       \
	VPMINUB  Y1, slashes, ends    \
	VPCMPEQB slashes, ends, ends  \
	VPCMPEQB Y2, slashes, slashes

// STRANGE finds in x what may not follow a backslash, or does not end the escape; x is gone.
#define STRANGE(x, t) \
	VPSHUFB  x, Y3, t \
	VPSRLW   $4, x, x \
	VPAND    Y5, x, x \
	VPSHUFB  x, Y4, x \
	VPAND    x, t, t  \
	VPCMPEQB Y6, t, t

// BITS puts one bit of each byte of x and y into r.
#define BITS(x, y, r, t) \
	VPMOVMSKB x, r \
	VPMOVMSKB y, t \
	SHLQ $32, t    \
	ORQ  t, r

// func skipWide(b []byte, i int) int
TEXT ·skipWide(SB), NOSPLIT, $0-40
	MOVQ b_base+0(FP), SI
	MOVQ b_len+8(FP), DX
	MOVQ i+24(FP), AX
	SUBQ $64, DX                 // where the last block may begin
	XORQ R11, R11                // 1 when the byte before the block is a backslash that begins an escape
	CMPQ AX, DX
	JGT  done
	MOVQ $0x0202020202020202, R8 // the second bit
	VMOVQ R8, X0
	VPBROADCASTQ X0, Y0
	MOVQ $0x2020202020202020, R8 // spaces
	VMOVQ R8, X1
	VPBROADCASTQ X1, Y1
	MOVQ $0x5e5e5e5e5e5e5e5e, R8 // backslashes, turned
	VMOVQ R8, X2
	VPBROADCASTQ X2, Y2
	VBROADCASTI128 lower<>(SB), Y3
	VBROADCASTI128 upper<>(SB), Y4
	MOVQ $0x0f0f0f0f0f0f0f0f, R8
	VMOVQ R8, X5
	VPBROADCASTQ X5, Y5
	VPXOR Y6, Y6, Y6

next:
	VMOVDQU 0(SI)(AX*1), Y7
	VMOVDQU 32(SI)(AX*1), Y8
	LOOK(Y7, Y9, Y10)
	LOOK(Y8, Y11, Y12)
	VPOR  Y9, Y10, Y13
	VPOR  Y11, Y12, Y14
	VPOR  Y13, Y14, Y13
	VPMOVMSKB Y13, CX
	ORL   R11, CX
	JNE   found

go_on:
	ADDQ $64, AX
	CMPQ AX, DX
	JLE  next
	SUBQ R11, AX
	JMP  out

found:
	BITS(Y9, Y11, CX, R8)        // where the string may end
	BITS(Y10, Y12, R9, R8)       // backslashes
	MOVQ R11, R8
	NOTQ R8
	ANDQ R8, R9                  // but not one that is escaped itself
	LEAQ 0(R9)(R9*1), R10        // what follows them
	TESTQ R9, R10
	JNE  runs
	ORQ  R11, R10
	MOVQ R9, R11
	SHRQ $63, R11

escaped: // R10 is what is escaped
	TESTQ R10, R10
	JEQ  ends
	STRANGE(Y7, Y9)
	STRANGE(Y8, Y11)
	BITS(Y9, Y11, R9, R8)
	ANDQ R10, R9                 // escapes that need a look
	MOVQ R10, R8
	NOTQ R8
	ANDQ R8, CX
	ORQ  R9, CX

ends:
	TESTQ CX, CX
	JEQ  go_on
	BSFQ CX, CX
	ADDQ CX, AX
	BTQ  CX, R10
	JCC  out
	DECQ AX                      // its backslash

out:
	VZEROUPPER

done:
	MOVQ AX, ret+32(FP)
	RET

runs: // backslashes follow one another: from the left each escapes the next
	MOVQ R11, R10

run:
	MOVQ R9, R8
	NEGQ R8
	ANDQ R9, R8                  // the first of them
	MOVQ R8, R11
	LEAQ 0(R8)(R8*1), R12
	ORQ  R12, R10
	ORQ  R12, R8
	NOTQ R8
	ANDQ R8, R9
	JNE  run
	SHRQ $63, R11
	JMP  escaped
