; The machine code of locks.py, which says what it does; machinery.py fills in the names that begin with a dollar sign.

declare i64 @pthread_self()
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_condattr_init(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_timedwait(ptr, ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @clock_gettime(i32, ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare i32 @PyErr_CheckSignals()
declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare ptr @PyCapsule_GetPointer(ptr, ptr)
declare ptr @PyLong_FromUnsignedLongLong(i64)
declare void @Py_DecRef(ptr)
declare ptr @memmove(ptr, ptr, i64)
$declarations

; The first place of a thread in a row, from 1; 0 where it has none.
define internal i64 @find(ptr %row, i64 %thread) {
  %count = load i64, ptr %row
  br label %look
look:
  %i = phi i64 [ 1, %0 ], [ %next, %compare ]
  %some = icmp sle i64 %i, %count
  br i1 %some, label %compare, label %nowhere
compare:
  %place = getelementptr i64, ptr %row, i64 %i
  %found = load i64, ptr %place
  %same = icmp eq i64 %found, %thread
  %next = add i64 %i, 1
  br i1 %same, label %there, label %look
there:
  ret i64 %i
nowhere:
  ret i64 0
}

; How many places of a row a thread has.
define internal i64 @times(ptr %row, i64 %thread) {
  %count = load i64, ptr %row
  br label %look
look:
  %i = phi i64 [ 1, %0 ], [ %next, %compare ]
  %sum = phi i64 [ 0, %0 ], [ %more, %compare ]
  %some = icmp sle i64 %i, %count
  br i1 %some, label %compare, label %done
compare:
  %place = getelementptr i64, ptr %row, i64 %i
  %found = load i64, ptr %place
  %same = icmp eq i64 %found, %thread
  %one = zext i1 %same to i64
  %more = add i64 %sum, %one
  %next = add i64 %i, 1
  br label %look
done:
  ret i64 %sum
}

; Whether another thread stands in front of this one, or anywhere in the row where this one has no place. Who runs its
; signal handlers does not count.
define internal i1 @is_behind(ptr %row, i64 %thread) {
  %count = load i64, ptr %row
  br label %look
look:
  %i = phi i64 [ 1, %0 ], [ %next, %other ]
  %some = icmp sle i64 %i, %count
  br i1 %some, label %compare, label %no
compare:
  %place = getelementptr i64, ptr %row, i64 %i
  %found = load i64, ptr %place
  %mine = icmp eq i64 %found, %thread
  br i1 %mine, label %no, label %other
other:
  %away = icmp slt i64 %found, 0
  %next = add i64 %i, 1
  br i1 %away, label %look, label %yes
yes:
  ret i1 true
no:
  ret i1 false
}

; Give a thread the last place of a row, unless the row is full.
define internal void @append(ptr %row, i64 %thread) {
  %count = load i64, ptr %row
  %room = icmp slt i64 %count, $ROW
  br i1 %room, label %adding, label %done
adding:
  %more = add i64 %count, 1
  %place = getelementptr i64, ptr %row, i64 %more
  store i64 %thread, ptr %place
  store i64 %more, ptr %row
  br label %done
done:
  ret void
}

; Take away the first place of a thread, if it has one.
define internal void @remove(ptr %row, i64 %thread) {
  %at = call i64 @find(ptr %row, i64 %thread)
  %some = icmp ne i64 %at, 0
  br i1 %some, label %removing, label %done
removing:
  %count = load i64, ptr %row
  %fewer = sub i64 %count, 1
  store i64 %fewer, ptr %row
  %place = getelementptr i64, ptr %row, i64 %at
  %behind = getelementptr i64, ptr %place, i64 1
  %others = sub i64 %count, %at
  %nbytes = mul i64 %others, 8
  call ptr @memmove(ptr %place, ptr %behind, i64 %nbytes)
  br label %done
done:
  ret void
}

; Write another number into the first place of a thread, if it has one.
define internal void @rename(ptr %row, i64 %thread, i64 %number) {
  %at = call i64 @find(ptr %row, i64 %thread)
  %some = icmp ne i64 %at, 0
  br i1 %some, label %renaming, label %done
renaming:
  %place = getelementptr i64, ptr %row, i64 %at
  store i64 %number, ptr %place
  br label %done
done:
  ret void
}

; Without a holder but this thread, if it is one. Called when the lock is made, and in a forked child.
define void @reset(ptr %lock) {
$places
  %attributes = alloca [128 x i8], align 8
  call i32 @pthread_mutex_init(ptr %MUTEX, ptr null)
  call i32 @pthread_condattr_init(ptr %attributes)
  $set_clock
  call i32 @pthread_cond_init(ptr %WAKE, ptr %attributes)
  %me = call i64 @pthread_self()
  %owner = load i64, ptr %OWNER
  %mine = icmp eq i64 %owner, %me
  %depth = load i64, ptr %DEPTH
  %left = select i1 %mine, i64 %depth, i64 0
  %still = select i1 %mine, i64 %me, i64 0
  %writing = load i64, ptr %WRITING
  %kept = select i1 %mine, i64 %writing, i64 0
  %reads = call i64 @times(ptr %READERS, i64 %me)
  %inside = add i64 %left, %reads
  store i64 %still, ptr %OWNER
  store i64 %left, ptr %DEPTH
  store i64 %inside, ptr %GATE
  store i64 %kept, ptr %WRITING
  store i64 0, ptr %READERS
  store i64 0, ptr %WAITERS
  br label %reading
reading:
  %i = phi i64 [ 0, %0 ], [ %next, %one ]
  %more = icmp slt i64 %i, %reads
  br i1 %more, label %one, label %done
one:
  call void @append(ptr %READERS, i64 %me)
  %next = add i64 %i, 1
  br label %reading
done:
  ret void
}

; Whoever waits looks again.
define internal void @wake(ptr %lock) {
$places
  %waiters = load i64, ptr %WAITERS
  %some = icmp sgt i64 %waiters, 0
  br i1 %some, label %waking, label %done
waking:
  $begin_waking
  %SERIAL_before = load i64, ptr %SERIAL
  %SERIAL_after = add i64 %SERIAL_before, 1
  store i64 %SERIAL_after, ptr %SERIAL
  call i32 @pthread_cond_broadcast(ptr %WAKE)
  $end_waking
  br label %done
done:
  ret void
}

; Sleep without the GIL until another thread wakes this one (0), or for a slice (1); then run signal handlers: -1 if one
; has raised.
define internal i32 @wait(ptr %lock, i64 %me) {
$places
  %until = alloca [2 x i64], align 8
  %fine_place = getelementptr i64, ptr %until, i64 1
  %before = load i64, ptr %SERIAL
  $end
  %thread = call ptr @PyEval_SaveThread()
  call i32 @clock_gettime(i32 $clock, ptr %until)
  %seconds = load i64, ptr %until
  %fine = load i64, ptr %fine_place
  %later = add i64 %fine, $SLICE
  %carry = udiv i64 %later, 1000000000
  %rest = urem i64 %later, 1000000000
  %end = add i64 %seconds, %carry
  store i64 %end, ptr %until
  store i64 %rest, ptr %fine_place
  call i32 @pthread_mutex_lock(ptr %MUTEX)
  br label %look
look:
  %serial = load volatile i64, ptr %SERIAL
  %same = icmp eq i64 %serial, %before
  br i1 %same, label %sleep, label %awake
sleep:
  %status = call i32 @pthread_cond_timedwait(ptr %WAKE, ptr %MUTEX, ptr %until)
  %woken = icmp eq i32 %status, 0
  br i1 %woken, label %look, label %awake
awake:
  %slept = phi i32 [ 0, %look ], [ 1, %sleep ]
  call i32 @pthread_mutex_unlock(ptr %MUTEX)
  call void @PyEval_RestoreThread(ptr %thread)
  %away = sub i64 0, %me
  $begin
  call void @rename(ptr %WAITERS, i64 %me, i64 %away)
  $end
  %raised = call i32 @PyErr_CheckSignals()
  $begin
  call void @rename(ptr %WAITERS, i64 %away, i64 %me)
  %bad = icmp ne i32 %raised, 0
  %answer = select i1 %bad, i32 -1, i32 %slept
  ret i32 %answer
}

; Tell a Python function who holds the lock, and for how many slices this thread has waited; -1 if it raises.
define internal i32 @report(ptr %lock, i64 %slices) {
$places
  %arguments = alloca [2 x ptr], align 8
  %second = getelementptr ptr, ptr %arguments, i64 1
  %waited = call ptr @PyLong_FromUnsignedLongLong(i64 %slices)
  store ptr %waited, ptr %second
  %owner = load i64, ptr %OWNER
  %number = call ptr @PyLong_FromUnsignedLongLong(i64 %owner)
  store ptr %number, ptr %arguments
  %report = load ptr, ptr %REPORT
  $end
  %answer = call ptr @PyObject_Vectorcall(ptr %report, ptr %arguments, i64 2, ptr null)
  $begin
  call void @Py_DecRef(ptr %number)
  call void @Py_DecRef(ptr %waited)
  %raised = icmp eq ptr %answer, null
  br i1 %raised, label %bad, label %good
bad:
  ret i32 -1
good:
  call void @Py_DecRef(ptr %answer)
  ret i32 0
}

; Take the lock: 0, or -1 with a Python exception set and the lock as it was.
define i32 @acquire(ptr %lock, i64 %kind) {
$places
  %me = call i64 @pthread_self()
  %is_shared = icmp eq i64 %kind, $SHARED
  %is_exclusive = icmp eq i64 %kind, $EXCLUSIVE
  $begin
  br label %try
try:
  %waited = phi i64 [ 0, %0 ], [ %slices, %again ]
  %owner = load i64, ptr %OWNER
  %readers = load i64, ptr %READERS
  %waiters = load i64, ptr %WAITERS
  %inside_or_out = or i64 %owner, %readers
  %anybody = or i64 %inside_or_out, %waiters
  %idle = icmp eq i64 %anybody, 0
  br i1 %idle, label %take, label %look
look:
  %mine = icmp eq i64 %owner, %me
  %own = call i64 @times(ptr %READERS, i64 %me)
  %reads = icmp ne i64 %own, 0
  %is_reader_alone = icmp ugt i1 %reads, %mine
  %waits_for_itself = and i1 %is_reader_alone, %is_exclusive
  br i1 %waits_for_itself, label %refuse, label %compare
compare:
  %owned = icmp ne i64 %owner, 0
  %taken_by_other = icmp ugt i1 %owned, %mine
  %others = icmp ne i64 %readers, %own
  %shut = and i1 %others, %is_exclusive
  %full = icmp eq i64 %readers, $ROW
  %no_room = and i1 %full, %is_shared
  %inside = or i1 %mine, %reads
  %follows = call i1 @is_behind(ptr %WAITERS, i64 %me)
  %behind = icmp ugt i1 %follows, %inside
  %held = or i1 %taken_by_other, %shut
  %held_or_full = or i1 %held, %no_room
  %busy = or i1 %held_or_full, %behind
  br i1 %busy, label %queue, label %enter
queue:
  %place = call i64 @find(ptr %WAITERS, i64 %me)
  %new = icmp eq i64 %place, 0
  br i1 %new, label %last, label %sleep
last:
  call void @append(ptr %WAITERS, i64 %me)
  br label %sleep
sleep:
  %status = call i32 @wait(ptr %lock, i64 %me)
  %raised = icmp slt i32 %status, 0
  br i1 %raised, label %leave, label %awake
awake:
  %slept = zext i32 %status to i64
  %slices = add i64 %waited, %slept
  %past = and i64 %slices, $look_mask
  %is_whole = icmp eq i64 %past, 0
  %has_slept = icmp ne i32 %status, 0
  %long = and i1 %is_whole, %has_slept
  br i1 %long, label %tell, label %again
tell:
  %told = call i32 @report(ptr %lock, i64 %slices)
  %refused = icmp ne i32 %told, 0
  br i1 %refused, label %leave, label %again
again:
  br label %try
refuse:
  %refusal = load ptr, ptr %REFUSE
  $end
  call ptr @PyObject_Vectorcall(ptr %refusal, ptr null, i64 0, ptr null)
  $begin
  br label %leave
leave:
  call void @remove(ptr %WAITERS, i64 %me)
  call void @wake(ptr %lock)
  $end
  ret i32 -1
enter:
  call void @remove(ptr %WAITERS, i64 %me)
  br i1 %is_shared, label %not_alone, label %take
not_alone:
  call void @wake(ptr %lock)
  br label %take
take:
  %GATE_before = load i64, ptr %GATE
  %GATE_after = add i64 %GATE_before, 1
  store i64 %GATE_after, ptr %GATE
  br i1 %is_shared, label %read_it, label %own_it
read_it:
  call void @append(ptr %READERS, i64 %me)
  $end
  ret i32 0
own_it:
  store i64 %me, ptr %OWNER
  %DEPTH_before = load i64, ptr %DEPTH
  %DEPTH_after = add i64 %DEPTH_before, 1
  store i64 %DEPTH_after, ptr %DEPTH
  $end
  ret i32 0
}

define void @release(ptr %lock, i64 %kind) {
$places
  %me = call i64 @pthread_self()
  $begin
  %GATE_before = load i64, ptr %GATE
  %GATE_after = sub i64 %GATE_before, 1
  store i64 %GATE_after, ptr %GATE
  %is_shared = icmp eq i64 %kind, $SHARED
  br i1 %is_shared, label %leave, label %disown
leave:
  call void @remove(ptr %READERS, i64 %me)
  br label %left
disown:
  %DEPTH_before = load i64, ptr %DEPTH
  %DEPTH_after = sub i64 %DEPTH_before, 1
  store i64 %DEPTH_after, ptr %DEPTH
  %still = icmp ne i64 %DEPTH_after, 0
  br i1 %still, label %done, label %free
free:
  store i64 0, ptr %OWNER
  br label %left
left:
  call void @wake(ptr %lock)
  br label %done
done:
  $end
  ret void
}

; PyObject *hold(PyObject *capsule, PyObject *const *args, Py_ssize_t nargs): call args[0] with the others. The words of
; the capsule are the lock's address and a kind.
define ptr @hold(ptr %capsule, ptr %args, i64 %count) {
  %words = call ptr @PyCapsule_GetPointer(ptr %capsule, ptr null)
  %lock = load ptr, ptr %words
  %kind_place = getelementptr i64, ptr %words, i64 1
  %kind = load i64, ptr %kind_place
  %function = load ptr, ptr %args
  %others = getelementptr ptr, ptr %args, i64 1
  %fewer = sub i64 %count, 1
  %status = call i32 @acquire(ptr %lock, i64 %kind)
  %raised = icmp ne i32 %status, 0
  br i1 %raised, label %refused, label %inside
refused:
  ret ptr null
inside:
  %answer = call ptr @PyObject_Vectorcall(ptr %function, ptr %others, i64 %fewer, ptr null)
  call void @release(ptr %lock, i64 %kind)
  ret ptr %answer
}
