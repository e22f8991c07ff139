; The machine code of threads.py, which says what it does; machinery.py fills in the names that begin with a dollar sign.

declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setstacksize(ptr, i64)
declare i32 @pthread_attr_destroy(ptr)
declare i32 @pthread_join(ptr, ptr)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
$declarations

define internal void @pause() {
  $pause
  ret void
}

$now

; Between two looks of a wait that began then; false when it has been long enough.
define internal i1 @relax(ptr %pool, i64 %since) {
$places
$pauses
  %now = call i64 @now()
  %waited = sub i64 %now, %since
  %most = load i64, ptr %PATIENCE
  %patient = icmp slt i64 %waited, %most
  ret i1 %patient
}

; The processor that this thread runs on, -1 where the system does not say.
define internal i64 @processor() {
  $processor
}

; Run on any other processor than this one, then be free again.
define internal void @move_from(i64 %processor) {
  $move
}

define internal void @keep_modes(ptr %place) {
  $keep_modes
  ret void
}

define internal void @take_modes(ptr %place) {
  $take_modes
  ret void
}

define void @reset(ptr %pool) {
$places
  store i64 0, ptr %STARTED
  store i64 0, ptr %STOP
  store i64 0, ptr %GATE
  store i64 0, ptr %INSIDE
  store i64 0, ptr %ASLEEP
  store i64 0, ptr %WAITING
  store i64 ptrtoint (ptr @run to i64), ptr %RUN
  call i32 @pthread_mutex_init(ptr %MUTEX, ptr null)
  call i32 @pthread_cond_init(ptr %WAKE, ptr null)
  call i32 @pthread_cond_init(ptr %LEFT, ptr null)
  store i64 0, ptr %BUSY
  ret void
}

; Make the workers; WORKERS becomes how many there are.
define internal void @start(ptr %pool) {
$places
  %all = alloca [128 x i8], align 8
  %old = alloca [128 x i8], align 8
  %wishes = alloca [128 x i8], align 8
  store i64 1, ptr %STARTED
  %workers = load i64, ptr %WORKERS
  call i32 @sigfillset(ptr %all)
  call i32 @pthread_sigmask(i32 $set_mask, ptr %all, ptr %old)
  call i32 @pthread_attr_init(ptr %wishes)
  call i32 @pthread_attr_setstacksize(ptr %wishes, i64 $STACK_BYTES)
  br label %check
check:
  %i = phi i64 [ 0, %0 ], [ %next, %made ]
  %more = icmp slt i64 %i, %workers
  br i1 %more, label %make, label %done
make:
  %next = add i64 %i, 1
  %at = mul i64 %next, $RECORD
  %record = getelementptr i64, ptr %THREADS, i64 %at
  %number_place = getelementptr i64, ptr %record, i64 $ThreadRecord.NUMBER
  %handle_place = getelementptr i64, ptr %record, i64 $ThreadRecord.HANDLE
  store ptr %pool, ptr %record
  store i64 %next, ptr %number_place
  %failed = call i32 @pthread_create(ptr %handle_place, ptr %wishes, ptr @worker, ptr %record)
  %bad = icmp ne i32 %failed, 0
  br i1 %bad, label %done, label %made
made:
  br label %check
done:
  store i64 %i, ptr %WORKERS
  call i32 @pthread_attr_destroy(ptr %wishes)
  call i32 @pthread_sigmask(i32 $set_mask, ptr %old, ptr null)
  ret void
}

; Take chunks until none is left: of the thread's own share, then of the others'.
define internal void @work(ptr %pool, i64 %worker) {
$places
  %part = load ptr, ptr %PART
  %table = load ptr, ptr %TABLE
  %workers = load i64, ptr %WORKERS
  br label %share
share:
  %owner = phi i64 [ %worker, %0 ], [ %following, %passed ]
  %before = phi i64 [ 0, %0 ], [ %tried, %passed ]
  %at = mul i64 %owner, $RECORD
  %record = getelementptr i64, ptr %THREADS, i64 %at
  %next_place = getelementptr i64, ptr %record, i64 $ThreadRecord.NEXT
  %end_place = getelementptr i64, ptr %record, i64 $ThreadRecord.END
  %end = load i64, ptr %end_place
  br label %look
look:
  %seen = load atomic i64, ptr %next_place monotonic, align 8
  %left = icmp slt i64 %seen, %end
  br i1 %left, label %take, label %passed
take:
  %chunk = atomicrmw add ptr %next_place, i64 1 monotonic
  %some = icmp slt i64 %chunk, %end
  br i1 %some, label %one, label %passed
one:
  call void %part(ptr %table, i64 %chunk, i64 %worker)
  br label %look
passed:
  %tried = add i64 %before, 1
  %is_last = icmp eq i64 %owner, %workers
  %after = add i64 %owner, 1
  %following = select i1 %is_last, i64 0, i64 %after
  %more = icmp sle i64 %tried, %workers
  br i1 %more, label %share, label %done
done:
  ret void
}

define void @run(ptr %pool, ptr %part, ptr %table, i64 %chunks) {
$places
  %taken = cmpxchg ptr %BUSY, i64 0, i64 1 acquire monotonic
  %mine = extractvalue { i64, i1 } %taken, 1
  br i1 %mine, label %first, label %alone
alone:
  %i = phi i64 [ 0, %0 ], [ %i_next, %alone_one ]
  %some = icmp slt i64 %i, %chunks
  br i1 %some, label %alone_one, label %end
alone_one:
  call void %part(ptr %table, i64 %i, i64 0)
  %i_next = add i64 %i, 1
  br label %alone
first:
  %started = load i64, ptr %STARTED
  %fresh = icmp eq i64 %started, 0
  br i1 %fresh, label %starting, label %opening
starting:
  call void @start(ptr %pool)
  br label %opening
opening:
  store ptr %part, ptr %PART
  store ptr %table, ptr %TABLE
  call void @keep_modes(ptr %MODES)
  %processor = call i64 @processor()
  store i64 %processor, ptr %PROCESSOR
  %workers = load i64, ptr %WORKERS
  %threads = add i64 %workers, 1
  br label %deal
deal:
  %thread = phi i64 [ 0, %opening ], [ %thread_next, %deal ]
  %from = phi i64 [ 0, %opening ], [ %to, %deal ]
  %thread_next = add i64 %thread, 1
  %product = mul i64 %thread_next, %chunks
  %raised = add i64 %product, %workers
  %to = udiv i64 %raised, %threads
  %at = mul i64 %thread, $RECORD
  %record = getelementptr i64, ptr %THREADS, i64 %at
  %next_place = getelementptr i64, ptr %record, i64 $ThreadRecord.NEXT
  %end_place = getelementptr i64, ptr %record, i64 $ThreadRecord.END
  store atomic i64 %from, ptr %next_place monotonic, align 8
  store i64 %to, ptr %end_place
  %dealing = icmp slt i64 %thread_next, %threads
  br i1 %dealing, label %deal, label %gating
gating:
  %gate = load atomic i64, ptr %GATE monotonic, align 8
  %open = add i64 %gate, 1
  %closed = add i64 %gate, 2
  store atomic i64 %open, ptr %GATE seq_cst, align 8
  %asleep = load atomic i64, ptr %ASLEEP seq_cst, align 8
  %others = sub i64 %chunks, 1
  %fewer = icmp slt i64 %asleep, %others
  %wanted = select i1 %fewer, i64 %asleep, i64 %others
  %any = icmp sgt i64 %wanted, 0
  br i1 %any, label %waking, label %working
waking:
  ; Who counts as asleep has seen the gate or waits by now; the mutex is free for those who are woken.
  call i32 @pthread_mutex_lock(ptr %MUTEX)
  call i32 @pthread_mutex_unlock(ptr %MUTEX)
  br label %wake
wake:
  %w = phi i64 [ %wanted, %waking ], [ %w_next, %wake ]
  call i32 @pthread_cond_signal(ptr %WAKE)
  %w_next = sub i64 %w, 1
  %w_more = icmp sgt i64 %w_next, 0
  br i1 %w_more, label %wake, label %working
working:
  call void @work(ptr %pool, i64 0)
  store atomic i64 %closed, ptr %GATE seq_cst, align 8
  %at_once = load atomic i64, ptr %INSIDE seq_cst, align 8
  %no_others = icmp eq i64 %at_once, 0
  br i1 %no_others, label %free, label %joining
joining:
  %since = call i64 @now()
  br label %spin
spin:
  %inside = load atomic i64, ptr %INSIDE seq_cst, align 8
  %empty = icmp eq i64 %inside, 0
  br i1 %empty, label %free, label %spin_on
spin_on:
  %patient = call i1 @relax(ptr %pool, i64 %since)
  br i1 %patient, label %spin, label %wait
wait:
  call i32 @pthread_mutex_lock(ptr %MUTEX)
  store atomic i64 1, ptr %WAITING seq_cst, align 8
  br label %look
look:
  %still = load atomic i64, ptr %INSIDE seq_cst, align 8
  %gone = icmp eq i64 %still, 0
  br i1 %gone, label %waited, label %sleep
sleep:
  call i32 @pthread_cond_wait(ptr %LEFT, ptr %MUTEX)
  br label %look
waited:
  store atomic i64 0, ptr %WAITING seq_cst, align 8
  call i32 @pthread_mutex_unlock(ptr %MUTEX)
  br label %free
free:
  store atomic i64 0, ptr %BUSY release, align 8
  br label %end
end:
  ret void
}

define internal ptr @worker(ptr %record) {
  %pool = load ptr, ptr %record
  %number_place = getelementptr i64, ptr %record, i64 $ThreadRecord.NUMBER
  %number = load i64, ptr %number_place
$places
  br label %idle
idle:
  %last = phi i64 [ 0, %0 ], [ %gate, %idle_again ]
  %since = call i64 @now()
  br label %spin
spin:
  %seen = load atomic i64, ptr %GATE acquire, align 8
  %seen_odd = trunc i64 %seen to i1
  %seen_new = icmp ne i64 %seen, %last
  %seen_open = and i1 %seen_odd, %seen_new
  br i1 %seen_open, label %enter, label %spin_on
spin_on:
  %patient = call i1 @relax(ptr %pool, i64 %since)
  br i1 %patient, label %spin, label %doze
doze:
  call i32 @pthread_mutex_lock(ptr %MUTEX)
  %was_asleep = atomicrmw add ptr %ASLEEP, i64 1 seq_cst
  br label %look
look:
  %now = load atomic i64, ptr %GATE seq_cst, align 8
  %now_odd = trunc i64 %now to i1
  %now_new = icmp ne i64 %now, %last
  %now_open = and i1 %now_odd, %now_new
  br i1 %now_open, label %woken, label %asleep
asleep:
  %stop = load atomic i64, ptr %STOP seq_cst, align 8
  %stopped = icmp ne i64 %stop, 0
  br i1 %stopped, label %quit, label %sleep
sleep:
  call i32 @pthread_cond_wait(ptr %WAKE, ptr %MUTEX)
  br label %look
woken:
  %were_asleep = atomicrmw sub ptr %ASLEEP, i64 1 seq_cst
  call i32 @pthread_mutex_unlock(ptr %MUTEX)
  br label %enter
enter:
  %gate = phi i64 [ %seen, %spin ], [ %now, %woken ]
  %were_inside = atomicrmw add ptr %INSIDE, i64 1 seq_cst
  %again = load atomic i64, ptr %GATE seq_cst, align 8
  %same = icmp eq i64 %again, %gate
  br i1 %same, label %busy, label %leave
busy:
  %callers = load i64, ptr %PROCESSOR
  %mine = call i64 @processor()
  %together = icmp eq i64 %callers, %mine
  %known = icmp sge i64 %mine, 0
  %crowded = and i1 %together, %known
  br i1 %crowded, label %moving, label %placed
moving:
  call void @move_from(i64 %mine)
  br label %placed
placed:
  call void @take_modes(ptr %MODES)
  call void @work(ptr %pool, i64 %number)
  br label %leave
leave:
  %inside = atomicrmw sub ptr %INSIDE, i64 1 seq_cst
  %waiting = load atomic i64, ptr %WAITING seq_cst, align 8
  %is_last = icmp eq i64 %inside, 1
  %is_waited_for = icmp ne i64 %waiting, 0
  %tell = and i1 %is_last, %is_waited_for
  br i1 %tell, label %telling, label %idle_again
telling:
  call i32 @pthread_mutex_lock(ptr %MUTEX)
  call i32 @pthread_mutex_unlock(ptr %MUTEX)
  call i32 @pthread_cond_broadcast(ptr %LEFT)
  br label %idle_again
idle_again:
  br label %idle
quit:
  %left_asleep = atomicrmw sub ptr %ASLEEP, i64 1 seq_cst
  call i32 @pthread_mutex_unlock(ptr %MUTEX)
  ret ptr null
}

; End the workers: 1 where that was possible. The pool stays taken, so later calls do their chunks themselves.
define i32 @stop(ptr %pool) {
$places
  %taken = cmpxchg ptr %BUSY, i64 0, i64 1 acquire monotonic
  %mine = extractvalue { i64, i1 } %taken, 1
  br i1 %mine, label %check, label %busy
busy:
  ret i32 0
check:
  %started = load i64, ptr %STARTED
  %fresh = icmp eq i64 %started, 0
  br i1 %fresh, label %done, label %stopping
stopping:
  store atomic i64 1, ptr %STOP seq_cst, align 8
  call i32 @pthread_mutex_lock(ptr %MUTEX)
  call i32 @pthread_cond_broadcast(ptr %WAKE)
  call i32 @pthread_mutex_unlock(ptr %MUTEX)
  %workers = load i64, ptr %WORKERS
  br label %join
join:
  %i = phi i64 [ 0, %stopping ], [ %next, %joining ]
  %more = icmp slt i64 %i, %workers
  br i1 %more, label %joining, label %done
joining:
  %next = add i64 %i, 1
  %at = mul i64 %next, $RECORD
  %offset = add i64 %at, $ThreadRecord.HANDLE
  %handle_place = getelementptr i64, ptr %THREADS, i64 %offset
  %handle = load ptr, ptr %handle_place
  call i32 @pthread_join(ptr %handle, ptr null)
  br label %join
done:
  ret i32 1
}
