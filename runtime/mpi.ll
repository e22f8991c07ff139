; The machine code of mpi.py, which says what it does; machinery.py fills in the names that begin with a dollar sign.
; Each function is called as i32 (ptr words, ptr operands): the operands' table begins with the number of elements.

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; On one process: the result is the operand.
define i32 @copy(ptr %words, ptr %operands) {
$operands
  call void @llvm.memcpy.p0.p0.i64(ptr %out, ptr %in, i64 %nbytes, i1 false)
  ret i32 0
}

define i32 @nothing(ptr %words, ptr %operands) {
  ret i32 0
}

define i32 @all_reduce(ptr %words, ptr %operands) {
$checked
  %status = call i32 %function(ptr %in, ptr %out, i32 %n, $HANDLE %type, $HANDLE %reduction, $HANDLE %comm)
$noted
}

define i32 @reduce_scatter(ptr %words, ptr %operands) {
$checked
  %status = call i32 %function(ptr %in, ptr %out, i32 %n, $HANDLE %type, $HANDLE %reduction, $HANDLE %comm)
$noted
}

define i32 @all_gather(ptr %words, ptr %operands) {
$checked
  %status = call i32 %function(ptr %in, i32 %n, $HANDLE %type, ptr %out, i32 %n, $HANDLE %type, $HANDLE %comm)
$noted
}

define i32 @broadcast(ptr %words, ptr %operands) {
$checked
  br i1 %is_root, label %giving, label %sharing
giving:
  call void @llvm.memcpy.p0.p0.i64(ptr %out, ptr %in, i64 %nbytes, i1 false)
  br label %sharing
sharing:
  %status = call i32 %function(ptr %out, i32 %n, $HANDLE %type, i32 %root, $HANDLE %comm)
$noted
}

define i32 @reduce(ptr %words, ptr %operands) {
$checked
  br i1 %is_root, label %sharing, label %clearing
clearing:
  call void @llvm.memset.p0.i64(ptr %out, i8 0, i64 %nbytes, i1 false)
  br label %sharing
sharing:
  %status = call i32 %function(ptr %in, ptr %out, i32 %n, $HANDLE %type, $HANDLE %reduction, i32 %root, $HANDLE %comm)
$noted
}

; The operand behind the result is where the request is kept until reduce_wait.
define i32 @reduce_start(ptr %words, ptr %operands) {
$checked
  %request_place = getelementptr ptr, ptr %operands, i64 3
  %request = load ptr, ptr %request_place
  %status = call i32 %function(ptr %in, ptr %out, i32 %n, $HANDLE %type, $HANDLE %reduction, $HANDLE %comm, ptr %request)
$noted
}

; The operands are the result, which is there then, and the request. MPI's own status is shorter than what it is given.
define i32 @reduce_wait(ptr %words, ptr %operands) {
$words
  %request_place = getelementptr ptr, ptr %operands, i64 2
  %request = load ptr, ptr %request_place
  %given = alloca [256 x i8], align 16
  %status = call i32 %function(ptr %request, ptr %given)
$noted
}

define i32 @barrier(ptr %words, ptr %operands) {
$words
  %status = call i32 %function($HANDLE %comm)
$noted
}
