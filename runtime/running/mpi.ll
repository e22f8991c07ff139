; The machine code of mpi.py, which says what it does; machinery.py fills in the names that begin with a dollar sign.
; Each operation is called as i32 (ptr words, ptr operands): the operands' table begins with the number of elements.

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i64 @llvm.umin.i64(i64, i64)
declare i32 @sched_yield()

$now

; Note why the operation fails: neither it nor any later one can go on.
define internal i32 @fail(ptr %words, i64 %why) {
$words
$meeting
  store i64 %why, ptr %STATUS
  store i64 1, ptr %failed
  ret i32 1
}

; Test until the requests have ended, or the time is up. The first look at the clock comes after some turns.
define internal i32 @wait(ptr %words, i32 %n, ptr %requests) {
$words
$meeting
  %flag = alloca i32, align 4
  %statuses = alloca [512 x i8], align 16
  %test = load ptr, ptr %TEST_ALL
  %most = load i64, ptr %PATIENCE
  br label %turn
turn:
  %i = phi i64 [ 0, %0 ], [ %next, %passed ], [ %next, %late ]
  %begun = phi i64 [ 0, %0 ], [ %begun, %passed ], [ %since, %late ]
  %status = call i32 %test(i32 %n, ptr %requests, ptr %flag, ptr %statuses)
  %wide = sext i32 %status to i64
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %failing, label %asking
asking:
  %set = load i32, ptr %flag
  %done = icmp ne i32 %set, 0
  br i1 %done, label %ending, label %passed
passed:
  %next = add i64 %i, 1
  %rest = and i64 %next, $LOOKS
  %looks = icmp eq i64 %rest, 0
  br i1 %looks, label %looking, label %turn
looking:
  %yielded = call i32 @sched_yield()
  %now = call i64 @now()
  %first = icmp eq i64 %begun, 0
  %since = select i1 %first, i64 %now, i64 %begun
  %waited = sub i64 %now, %since
  %over = icmp sgt i64 %waited, %most
  br i1 %over, label %late_for_good, label %late
late:
  br label %turn
late_for_good:
  br label %failing
failing:
  %why = phi i64 [ %wide, %turn ], [ $TOO_LATE, %late_for_good ]
  %failed_now = call i32 @fail(ptr %words, i64 %why)
  ret i32 1
ending:
  ret i32 0
}

; What was begun with this status and request, unless it failed.
define internal i32 @complete(ptr %words, i32 %status, ptr %request) {
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %failing, label %waiting
failing:
  %wide = sext i32 %status to i64
  %failed = call i32 @fail(ptr %words, i64 %wide)
  ret i32 1
waiting:
  %waited = call i32 @wait(ptr %words, i32 1, ptr %request)
  ret i32 %waited
}

; The bytes of a rank's header with its operand, and whether those of all ranks fit together.
define internal i64 @stride(i64 %nbytes) {
  %more = add i64 %nbytes, $HEADER_UP
  %stride = and i64 %more, -8
  ret i64 %stride
}

define internal i1 @is_short(i64 %size, i64 %nbytes) {
  %limited = call i64 @llvm.umin.i64(i64 %nbytes, i64 $SHORT)
  %stride = call i64 @stride(i64 %limited)
  %all = mul i64 %stride, %size
  %is = icmp ule i64 %all, $SHORT
  ret i1 %is
}

; Find out that all ranks are at this operation. If their operands are short, all of them come with the headers: 2. Else
; headers go from each rank to its neighbour: 0. 1 after a failure.
; In round d each rank hands the blocks of the last min(d, size - d) ranks up to itself to the rank d places on; block j
; is that of the rank j places back.
define internal i32 @meet(ptr %words, i64 %count, ptr %in, i64 %nbytes) {
$words
$meeting
  %requests = alloca [2 x i64], align 8
  %second = getelementptr $HANDLE, ptr %requests, i64 1
  %was_failed = load i64, ptr %failed
  %is_out = icmp ne i64 %was_failed, 0
  br i1 %is_out, label %refusing, label %going
refusing:
  %refused = call i32 @fail(ptr %words, i64 $OUT_OF_STEP)
  ret i32 1
going:
  %comm = load $HANDLE, ptr %COMM
  %byte = load $HANDLE, ptr %BYTE
  %receive = load ptr, ptr %RECEIVE
  %send = load ptr, ptr %SEND
  %rank = load i64, ptr %RANK
  %place = load i64, ptr %PLACE
  %kind = load i64, ptr %KIND
  %kind_place = getelementptr i64, ptr %blocks, i64 1
  %count_place = getelementptr i64, ptr %blocks, i64 2
  store i64 %place, ptr %blocks
  store i64 %kind, ptr %kind_place
  store i64 %count, ptr %count_place
  %short = call i1 @is_short(i64 %size, i64 %nbytes)
  %payload = select i1 %short, i64 %nbytes, i64 0
  %stride = call i64 @stride(i64 %payload)
  %own = getelementptr i8, ptr %blocks, i64 $HEADER_BYTES
  call void @llvm.memcpy.p0.p0.i64(ptr %own, ptr %in, i64 %payload, i1 false)
  br label %round
round:
  %d = phi i64 [ 1, %going ], [ %twice, %equal ]
  %left_over = sub i64 %size, %d
  %c = call i64 @llvm.umin.i64(i64 %d, i64 %left_over)
  %on = add i64 %rank, %d
  %to = urem i64 %on, %size
  %back = add i64 %rank, %left_over
  %from = urem i64 %back, %size
  %to_rank = trunc i64 %to to i32
  %from_rank = trunc i64 %from to i32
  %sent = mul i64 %c, %stride
  %sent_bytes = trunc i64 %sent to i32
  %behind = mul i64 %d, %stride
  %got = getelementptr i8, ptr %blocks, i64 %behind
  %r = call i32 %receive(ptr %got, i32 $SHORT, $HANDLE %byte, i32 %from_rank, i32 $TAG, $HANDLE %comm, ptr %requests)
  %s = call i32 %send(ptr %blocks, i32 %sent_bytes, $HANDLE %byte, i32 %to_rank, i32 $TAG, $HANDLE %comm, ptr %second)
  %either = or i32 %r, %s
  %bad = icmp ne i32 %either, 0
  br i1 %bad, label %broken, label %sharing
broken:
  %wide = sext i32 %either to i64
  %noted = call i32 @fail(ptr %words, i64 %wide)
  ret i32 1
sharing:
  %waited = call i32 @wait(ptr %words, i32 2, ptr %requests)
  %late = icmp ne i32 %waited, 0
  br i1 %late, label %lost, label %comparing
lost:
  ret i32 1
comparing:
  %j = phi i64 [ 0, %sharing ], [ %following, %same ]
  %some = icmp ult i64 %j, %c
  br i1 %some, label %looking, label %equal
looking:
  %behind_j = mul i64 %j, %stride
  %header = getelementptr i8, ptr %got, i64 %behind_j
  %header_kind = getelementptr i64, ptr %header, i64 1
  %header_count = getelementptr i64, ptr %header, i64 2
  %place_j = load i64, ptr %header
  %kind_j = load i64, ptr %header_kind
  %count_j = load i64, ptr %header_count
  %other_place = xor i64 %place_j, %place
  %other_kind = xor i64 %kind_j, %kind
  %other_count = xor i64 %count_j, %count
  %first_two = or i64 %other_place, %other_kind
  %others = or i64 %first_two, %other_count
  %differs = icmp ne i64 %others, 0
  %following = add i64 %j, 1
  br i1 %differs, label %differing, label %same
same:
  br label %comparing
differing:
  %found_kind = getelementptr i64, ptr %FOUND, i64 1
  %found_count = getelementptr i64, ptr %FOUND, i64 2
  store i64 %place_j, ptr %FOUND
  store i64 %kind_j, ptr %found_kind
  store i64 %count_j, ptr %found_count
  store i64 %count, ptr %OWN_COUNT
  %further = add i64 %d, %j
  %places_back = sub i64 %size, %further
  %whose = add i64 %rank, %places_back
  %found_rank = urem i64 %whose, %size
  store i64 %found_rank, ptr %FOUND_RANK
  %told = call i32 @fail(ptr %words, i64 $DIFFERENT)
  ret i32 1
equal:
  %twice = add i64 %d, %d
  %more = icmp ult i64 %twice, %size
  %goes_on = and i1 %more, %short
  br i1 %goes_on, label %round, label %met
met:
  %result = select i1 %short, i32 2, i32 0
  ret i32 %result
}

; The operand of a rank, of nbytes, as it came with the headers.
define internal ptr @operand(ptr %words, i64 %nbytes, i64 %number) {
$words
$meeting
  %rank = load i64, ptr %RANK
  %stride = call i64 @stride(i64 %nbytes)
  %above = add i64 %rank, %size
  %places_back = sub i64 %above, %number
  %slot = urem i64 %places_back, %size
  %at = mul i64 %slot, %stride
  %from = add i64 %at, $HEADER_BYTES
  %place = getelementptr i8, ptr %blocks, i64 %from
  ret ptr %place
}

; The reduction of the operands that came with the headers, in the order of ranks; of their parts at an offset.
define internal i32 @combine(ptr %words, ptr %out, i64 %nbytes, i64 %offset, i64 %part, i32 %n) {
$words
$meeting
  %type = load $HANDLE, ptr %TYPE
  %reduction = load $HANDLE, ptr %REDUCTION
  %reduce = load ptr, ptr %REDUCE_LOCAL
  %first = call ptr @operand(ptr %words, i64 %nbytes, i64 0)
  %first_part = getelementptr i8, ptr %first, i64 %offset
  call void @llvm.memcpy.p0.p0.i64(ptr %out, ptr %first_part, i64 %part, i1 false)
  br label %turn
turn:
  %i = phi i64 [ 1, %0 ], [ %next, %one ]
  %some = icmp ult i64 %i, %size
  br i1 %some, label %one, label %done
one:
  %given = call ptr @operand(ptr %words, i64 %nbytes, i64 %i)
  %given_part = getelementptr i8, ptr %given, i64 %offset
  %status = call i32 %reduce(ptr %given_part, ptr %out, i32 %n, $HANDLE %type, $HANDLE %reduction)
  %next = add i64 %i, 1
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %failing, label %turn
failing:
  %wide = sext i32 %status to i64
  %failed_now = call i32 @fail(ptr %words, i64 %wide)
  ret i32 1
done:
  ret i32 0
}

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
  %met = call i32 @meet(ptr %words, i64 %count, ptr %in, i64 %nbytes)
  switch i32 %met, label %ending [ i32 0, label %long
                                   i32 2, label %short ]
ending:
  ret i32 %met
short:
  %reduced = call i32 @combine(ptr %words, ptr %out, i64 %nbytes, i64 0, i64 %nbytes, i32 %n)
  ret i32 %reduced
long:
  %status = call i32 %function(ptr %in, ptr %out, i32 %n, $HANDLE %type, $HANDLE %reduction, $HANDLE %comm, ptr %request)
  %done = call i32 @complete(ptr %words, i32 %status, ptr %request)
  ret i32 %done
}

define i32 @reduce_scatter(ptr %words, ptr %operands) {
$checked
  %whole = mul i64 %nbytes, %size
  %met = call i32 @meet(ptr %words, i64 %count, ptr %in, i64 %whole)
  switch i32 %met, label %ending [ i32 0, label %long
                                   i32 2, label %short ]
ending:
  ret i32 %met
short:
  %rank = load i64, ptr %RANK
  %offset = mul i64 %rank, %nbytes
  %reduced = call i32 @combine(ptr %words, ptr %out, i64 %whole, i64 %offset, i64 %nbytes, i32 %n)
  ret i32 %reduced
long:
  %status = call i32 %function(ptr %in, ptr %out, i32 %n, $HANDLE %type, $HANDLE %reduction, $HANDLE %comm, ptr %request)
  %done = call i32 @complete(ptr %words, i32 %status, ptr %request)
  ret i32 %done
}

define i32 @all_gather(ptr %words, ptr %operands) {
$checked
  %met = call i32 @meet(ptr %words, i64 %count, ptr %in, i64 %nbytes)
  switch i32 %met, label %ending [ i32 0, label %long
                                   i32 2, label %turn ]
ending:
  ret i32 %met
turn:
  %i = phi i64 [ 0, %enough ], [ %next, %turn ]
  %given = call ptr @operand(ptr %words, i64 %nbytes, i64 %i)
  %at = mul i64 %i, %nbytes
  %place = getelementptr i8, ptr %out, i64 %at
  call void @llvm.memcpy.p0.p0.i64(ptr %place, ptr %given, i64 %nbytes, i1 false)
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %size
  br i1 %more, label %turn, label %gathered
gathered:
  ret i32 0
long:
  %status = call i32 %function(ptr %in, i32 %n, $HANDLE %type, ptr %out, i32 %n, $HANDLE %type, $HANDLE %comm, ptr %request)
  %done = call i32 @complete(ptr %words, i32 %status, ptr %request)
  ret i32 %done
}

define i32 @broadcast(ptr %words, ptr %operands) {
$checked
  %met = call i32 @meet(ptr %words, i64 %count, ptr %in, i64 %nbytes)
  switch i32 %met, label %ending [ i32 0, label %long
                                   i32 2, label %short ]
ending:
  ret i32 %met
short:
  %root_number = zext i32 %root to i64
  %given = call ptr @operand(ptr %words, i64 %nbytes, i64 %root_number)
  call void @llvm.memcpy.p0.p0.i64(ptr %out, ptr %given, i64 %nbytes, i1 false)
  ret i32 0
long:
  br i1 %is_root, label %giving, label %sharing
giving:
  call void @llvm.memcpy.p0.p0.i64(ptr %out, ptr %in, i64 %nbytes, i1 false)
  br label %sharing
sharing:
  %status = call i32 %function(ptr %out, i32 %n, $HANDLE %type, i32 %root, $HANDLE %comm, ptr %request)
  %done = call i32 @complete(ptr %words, i32 %status, ptr %request)
  ret i32 %done
}

define i32 @reduce(ptr %words, ptr %operands) {
$checked
  %met = call i32 @meet(ptr %words, i64 %count, ptr %in, i64 %nbytes)
  %failing = icmp eq i32 %met, 1
  br i1 %failing, label %ending, label %choosing
ending:
  ret i32 %met
choosing:
  %short = icmp eq i32 %met, 2
  br i1 %is_root, label %taking, label %clearing
clearing:
  call void @llvm.memset.p0.i64(ptr %out, i8 0, i64 %nbytes, i1 false)
  br i1 %short, label %cleared, label %long
cleared:
  ret i32 0
taking:
  br i1 %short, label %combining, label %long
combining:
  %reduced = call i32 @combine(ptr %words, ptr %out, i64 %nbytes, i64 0, i64 %nbytes, i32 %n)
  ret i32 %reduced
long:
  %status = call i32 %function(ptr %in, ptr %out, i32 %n, $HANDLE %type, $HANDLE %reduction, i32 %root, $HANDLE %comm, ptr %request)
  %done = call i32 @complete(ptr %words, i32 %status, ptr %request)
  ret i32 %done
}

; The operand after the result is where the request is kept until reduce_wait. Operands go by themselves.
define i32 @reduce_start(ptr %words, ptr %operands) {
$checked
  %request_place = getelementptr ptr, ptr %operands, i64 3
  %own_request = load ptr, ptr %request_place
  %met = call i32 @meet(ptr %words, i64 %count, ptr %in, i64 $SHORT)
  %failing = icmp eq i32 %met, 1
  br i1 %failing, label %ending, label %starting
ending:
  ret i32 %met
starting:
  %status = call i32 %function(ptr %in, ptr %out, i32 %n, $HANDLE %type, $HANDLE %reduction, $HANDLE %comm, ptr %own_request)
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %broken, label %started
broken:
  %wide = sext i32 %status to i64
  %failed_now = call i32 @fail(ptr %words, i64 %wide)
  ret i32 1
started:
  ret i32 0
}

; The operands are the result, which is there then, and the request.
define i32 @reduce_wait(ptr %words, ptr %operands) {
  %request_place = getelementptr ptr, ptr %operands, i64 2
  %request = load ptr, ptr %request_place
  %waited = call i32 @wait(ptr %words, i32 1, ptr %request)
  ret i32 %waited
}

; All ranks are there when a message has come from each, if only by way of others.
define i32 @barrier(ptr %words, ptr %operands) {
$words
$meeting
  %request = alloca i64, align 8
  %comm = load $HANDLE, ptr %COMM
  %function = load ptr, ptr %FUNCTION
  %met = call i32 @meet(ptr %words, i64 0, ptr %words, i64 0)
  switch i32 %met, label %ending [ i32 0, label %long
                                   i32 2, label %short ]
ending:
  ret i32 %met
short:
  ret i32 0
long:
  %status = call i32 %function($HANDLE %comm, ptr %request)
  %done = call i32 @complete(ptr %words, i32 %status, ptr %request)
  ret i32 %done
}
