; Made of threads.c by make parts, from 01e8a380b186892a. Do not edit.

%struct.PoolWord = type { i64, i64, i64, i64, i64, [3 x i64], i64, [7 x i64], i64, [15 x i64], i64, [7 x i64], i64, i64, [1 x i64], i64, i64, [3 x i64], i64, i64, [6 x i64], i64, [7 x i64], i64, [7 x i64], i64, [7 x i64], i64 }
%struct.ThreadRecord = type { i64, i64, i64, i64, i64 }

define void @run(ptr %pool, ptr %part, ptr %table, i64 %chunks) {
entry:
  %time.i.i = alloca [2 x i64], align 16
  %all.i = alloca [16 x i64], align 16
  %old.i = alloca [16 x i64], align 16
  %attributes.i = alloca [16 x i64], align 16
  %BUSY.i = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 6
  %0 = cmpxchg ptr %BUSY.i, i64 0, i64 1 acquire monotonic, align 8
  %1 = extractvalue { i64, i1 } %0, 1
  br i1 %1, label %if.end, label %for.cond.preheader

for.cond.preheader:
  %cmp58 = icmp sgt i64 %chunks, 0
  br i1 %cmp58, label %for.body, label %return

for.body:
  %i.059 = phi i64 [ %inc, %for.body ], [ 0, %for.cond.preheader ]
  tail call void %part(ptr %table, i64 %i.059, i64 0)
  %inc = add nuw nsw i64 %i.059, 1
  %exitcond.not = icmp eq i64 %inc, %chunks
  br i1 %exitcond.not, label %return, label %for.body

if.end:
  %STARTED = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 2
  %2 = load i64, ptr %STARTED, align 8
  %tobool.not = icmp eq i64 %2, 0
  br i1 %tobool.not, label %if.then1, label %if.end2

if.then1:
  store i64 1, ptr %STARTED, align 8
  %arraydecay.i = getelementptr inbounds [16 x i64], ptr %all.i, i64 0, i64 0
  %call.i = call i32 @sigfillset(ptr %arraydecay.i)
  %arraydecay2.i = getelementptr inbounds [16 x i64], ptr %old.i, i64 0, i64 0
  %call3.i = call i32 @pthread_sigmask(i32 $SIG_SETMASK, ptr %arraydecay.i, ptr %arraydecay2.i)
  %arraydecay4.i = getelementptr inbounds [16 x i64], ptr %attributes.i, i64 0, i64 0
  %call5.i = call i32 @pthread_attr_init(ptr %arraydecay4.i)
  %call7.i = call i32 @pthread_attr_setstacksize(ptr %arraydecay4.i, i64 1048576)
  %WORKERS.i = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 1
  %3 = load i64, ptr %WORKERS.i, align 8
  %THREADS.i.i = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 27
  %4 = ptrtoint ptr %pool to i64
  %smax.i = call i64 @llvm.smax.i64(i64 %3, i64 0)
  br label %for.cond.i

for.cond.i:
  %made.0.i = phi i64 [ 0, %if.then1 ], [ %add.i, %for.body.i ]
  %exitcond.not.i = icmp eq i64 %made.0.i, %smax.i
  br i1 %exitcond.not.i, label %start.exit, label %for.body.i

for.body.i:
  %add.i = add nuw i64 %made.0.i, 1
  %mul.i.i = shl i64 %add.i, 3
  %add.ptr.i.i = getelementptr i64, ptr %THREADS.i.i, i64 %mul.i.i
  store i64 %4, ptr %add.ptr.i.i, align 8
  %NUMBER.i = getelementptr inbounds %struct.ThreadRecord, ptr %add.ptr.i.i, i64 0, i32 1
  store i64 %add.i, ptr %NUMBER.i, align 8
  %HANDLE.i = getelementptr inbounds %struct.ThreadRecord, ptr %add.ptr.i.i, i64 0, i32 2
  %call11.i = call i32 @pthread_create(ptr %HANDLE.i, ptr %arraydecay4.i, ptr @worker, ptr %add.ptr.i.i)
  %tobool.not.i = icmp eq i32 %call11.i, 0
  br i1 %tobool.not.i, label %for.cond.i, label %start.exit

start.exit:
  %made.0.lcssa.i = phi i64 [ %smax.i, %for.cond.i ], [ %made.0.i, %for.body.i ]
  store i64 %made.0.lcssa.i, ptr %WORKERS.i, align 8
  %call15.i = call i32 @pthread_attr_destroy(ptr %arraydecay4.i)
  %call17.i = call i32 @pthread_sigmask(i32 $SIG_SETMASK, ptr %arraydecay2.i, ptr null)
  br label %if.end2

if.end2:
  %5 = ptrtoint ptr %part to i64
  %PART = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 12
  store i64 %5, ptr %PART, align 8
  %6 = ptrtoint ptr %table to i64
  %TABLE = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 13
  store i64 %6, ptr %TABLE, align 8
  %MODES = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 15
  call void @keep_modes(ptr %MODES)
  %call3 = call i64 @processor()
  %PROCESSOR = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 16
  store i64 %call3, ptr %PROCESSOR, align 8
  %WORKERS.i43 = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 1
  %7 = load i64, ptr %WORKERS.i43, align 8
  %add.i44 = add i64 %7, 1
  %cmp17.i = icmp ult i64 %7, 9223372036854775807
  br i1 %cmp17.i, label %for.body.lr.ph.i, label %deal.exit

for.body.lr.ph.i:
  %THREADS.i.i45 = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 27
  br label %for.body.i49

for.body.i49:
  %from.019.i = phi i64 [ 0, %for.body.lr.ph.i ], [ %div.i, %for.body.i49 ]
  %i.018.i = phi i64 [ 0, %for.body.lr.ph.i ], [ %add1.i, %for.body.i49 ]
  %add1.i = add nuw nsw i64 %i.018.i, 1
  %mul.i = mul i64 %add1.i, %chunks
  %add3.i = add i64 %mul.i, %7
  %div.i = udiv i64 %add3.i, %add.i44
  %mul.i.i46 = shl i64 %i.018.i, 3
  %add.ptr.i.i47 = getelementptr i64, ptr %THREADS.i.i45, i64 %mul.i.i46
  %NEXT.i = getelementptr inbounds %struct.ThreadRecord, ptr %add.ptr.i.i47, i64 0, i32 3
  store atomic i64 %from.019.i, ptr %NEXT.i monotonic, align 8
  %END.i = getelementptr inbounds %struct.ThreadRecord, ptr %add.ptr.i.i47, i64 0, i32 4
  store i64 %div.i, ptr %END.i, align 8
  %exitcond.not.i48 = icmp eq i64 %i.018.i, %7
  br i1 %exitcond.not.i48, label %deal.exit, label %for.body.i49

deal.exit:
  %GATE = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 8
  %8 = load atomic i64, ptr %GATE monotonic, align 8
  %add = add i64 %8, 1
  store atomic i64 %add, ptr %GATE seq_cst, align 8
  %cmp5 = icmp sgt i64 %chunks, 1
  br i1 %cmp5, label %land.lhs.true, label %if.end14

land.lhs.true:
  %ASLEEP = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 18
  %9 = load atomic i64, ptr %ASLEEP seq_cst, align 8
  %tobool7.not = icmp eq i64 %9, 0
  br i1 %tobool7.not, label %if.end14, label %if.then8

if.then8:
  %MUTEX = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 21
  %call9 = call i32 @pthread_mutex_lock(ptr %MUTEX)
  %call11 = call i32 @pthread_mutex_unlock(ptr %MUTEX)
  %sub = add nsw i64 %chunks, -1
  %cmp12 = icmp ult i64 %sub, 2
  %cond = select i1 %cmp12, i64 %sub, i64 2
  %10 = load atomic i64, ptr %ASLEEP seq_cst, align 8
  %cmp17.i50 = icmp sgt i64 %10, 0
  br i1 %cmp17.i50, label %for.body.lr.ph.i51, label %if.end14

for.body.lr.ph.i51:
  %WAKE.i = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 23
  br label %for.body.i52

for.body.i52:
  %i.08.i = phi i64 [ 0, %for.body.lr.ph.i51 ], [ %inc.i, %for.body.i52 ]
  %call2.i = call i32 @pthread_cond_signal(ptr %WAKE.i)
  %inc.i = add nuw nsw i64 %i.08.i, 1
  %cmp.i = icmp ult i64 %inc.i, %cond
  %cmp1.i = icmp slt i64 %inc.i, %10
  %11 = select i1 %cmp.i, i1 %cmp1.i, i1 false
  br i1 %11, label %for.body.i52, label %if.end14

if.end14:
  call fastcc void @work(ptr %pool, i64 0)
  %add16 = add i64 %8, 2
  store atomic i64 %add16, ptr %GATE seq_cst, align 8
  %INSIDE.i = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 10
  %12 = load atomic i64, ptr %INSIDE.i seq_cst, align 8
  %tobool.not.i53 = icmp eq i64 %12, 0
  br i1 %tobool.not.i53, label %join.exit, label %if.end.i

if.end.i:
  %arraydecay.i.i = getelementptr inbounds [2 x i64], ptr %time.i.i, i64 0, i64 0
  %call.i.i = call i32 @clock_gettime(i32 $MONOTONIC, ptr %arraydecay.i.i)
  %13 = load i64, ptr %arraydecay.i.i, align 16
  %mul.i.i54 = mul i64 %13, 1000000000
  %arrayidx1.i.i = getelementptr inbounds [2 x i64], ptr %time.i.i, i64 0, i64 1
  %14 = load i64, ptr %arrayidx1.i.i, align 8
  %add.i.i = add i64 %mul.i.i54, %14
  br label %while.cond.i

while.cond.i:
  %15 = load atomic i64, ptr %INSIDE.i seq_cst, align 8
  %tobool4.not.i = icmp eq i64 %15, 0
  br i1 %tobool4.not.i, label %join.exit, label %while.body.i

while.body.i:
  %call5.i55 = call fastcc zeroext i1 @relax(ptr %pool, i64 %add.i.i)
  br i1 %call5.i55, label %while.cond.i, label %if.then6.i

if.then6.i:
  %MUTEX.i = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 21
  %call7.i56 = call i32 @pthread_mutex_lock(ptr %MUTEX.i)
  %WAITING.i = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 19
  store atomic i64 1, ptr %WAITING.i seq_cst, align 8
  %16 = load atomic i64, ptr %INSIDE.i seq_cst, align 8
  %tobool11.not29.i = icmp eq i64 %16, 0
  br i1 %tobool11.not29.i, label %while.end.i, label %while.body12.lr.ph.i

while.body12.lr.ph.i:
  %LEFT.i = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 25
  br label %while.body12.i

while.body12.i:
  %call14.i = call i32 @pthread_cond_wait(ptr %LEFT.i, ptr %MUTEX.i)
  %17 = load atomic i64, ptr %INSIDE.i seq_cst, align 8
  %tobool11.not.i = icmp eq i64 %17, 0
  br i1 %tobool11.not.i, label %while.end.i, label %while.body12.i

while.end.i:
  store atomic i64 0, ptr %WAITING.i seq_cst, align 8
  %call17.i57 = call i32 @pthread_mutex_unlock(ptr %MUTEX.i)
  br label %join.exit

join.exit:
  store atomic i64 0, ptr %BUSY.i release, align 8
  br label %return

return:
  ret void
}

declare hidden void @keep_modes(ptr)

declare hidden i64 @processor()

declare i32 @pthread_mutex_lock(ptr)

declare i32 @pthread_mutex_unlock(ptr)

define internal fastcc void @work(ptr %pool, i64 %worker) {
entry:
  %PART = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 12
  %0 = load i64, ptr %PART, align 8
  %1 = inttoptr i64 %0 to ptr
  %TABLE = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 13
  %2 = load i64, ptr %TABLE, align 8
  %3 = inttoptr i64 %2 to ptr
  %WORKERS = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 1
  %4 = load i64, ptr %WORKERS, align 8
  %cmp.not24 = icmp slt i64 %4, 0
  br i1 %cmp.not24, label %for.cond.cleanup, label %for.body.lr.ph

for.body.lr.ph:
  %THREADS.i = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 27
  br label %for.body

for.cond.cleanup:
  ret void

for.body:
  %owner.026 = phi i64 [ %worker, %for.body.lr.ph ], [ %cond, %while.end ]
  %tried.025 = phi i64 [ 0, %for.body.lr.ph ], [ %inc, %while.end ]
  %mul.i = shl i64 %owner.026, 3
  %add.ptr.i = getelementptr i64, ptr %THREADS.i, i64 %mul.i
  %END = getelementptr inbounds %struct.ThreadRecord, ptr %add.ptr.i, i64 0, i32 4
  %5 = load i64, ptr %END, align 8
  %NEXT = getelementptr inbounds %struct.ThreadRecord, ptr %add.ptr.i, i64 0, i32 3
  %6 = load atomic i64, ptr %NEXT monotonic, align 8
  %cmp123 = icmp slt i64 %6, %5
  br i1 %cmp123, label %while.body, label %while.end

while.body:
  %7 = atomicrmw add ptr %NEXT, i64 1 monotonic, align 8
  %cmp4.not = icmp slt i64 %7, %5
  br i1 %cmp4.not, label %cleanup, label %while.end

cleanup:
  tail call void %1(ptr %3, i64 %7, i64 %worker)
  %8 = load atomic i64, ptr %NEXT monotonic, align 8
  %cmp1 = icmp slt i64 %8, %5
  br i1 %cmp1, label %while.body, label %while.end

while.end:
  %cmp5 = icmp eq i64 %owner.026, %4
  %add = add i64 %owner.026, 1
  %cond = select i1 %cmp5, i64 0, i64 %add
  %inc = add i64 %tried.025, 1
  %cmp.not = icmp sgt i64 %inc, %4
  br i1 %cmp.not, label %for.cond.cleanup, label %for.body
}

define void @reset(ptr %pool) {
entry:
  %WAITING = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 19
  store i64 0, ptr %WAITING, align 8
  %ASLEEP = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 18
  store i64 0, ptr %ASLEEP, align 8
  %INSIDE = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 10
  store i64 0, ptr %INSIDE, align 8
  %GATE = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 8
  store i64 0, ptr %GATE, align 8
  %STOP = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 3
  store i64 0, ptr %STOP, align 8
  %STARTED = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 2
  store i64 0, ptr %STARTED, align 8
  %RUN = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 0
  store i64 ptrtoint (ptr @run to i64), ptr %RUN, align 8
  %MUTEX = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 21
  %call = tail call i32 @pthread_mutex_init(ptr %MUTEX, ptr null)
  %WAKE = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 23
  %call1 = tail call i32 @pthread_cond_init(ptr %WAKE, ptr null)
  %LEFT = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 25
  %call2 = tail call i32 @pthread_cond_init(ptr %LEFT, ptr null)
  %BUSY = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 6
  store i64 0, ptr %BUSY, align 8
  ret void
}

declare i32 @pthread_mutex_init(ptr, ptr)

declare i32 @pthread_cond_init(ptr, ptr)

define i32 @stop(ptr %pool) {
entry:
  %BUSY.i = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 6
  %0 = cmpxchg ptr %BUSY.i, i64 0, i64 1 acquire monotonic, align 8
  %1 = extractvalue { i64, i1 } %0, 1
  br i1 %1, label %if.end, label %return

if.end:
  %STARTED = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 2
  %2 = load i64, ptr %STARTED, align 8
  %tobool.not = icmp eq i64 %2, 0
  br i1 %tobool.not, label %return, label %if.then1

if.then1:
  %STOP = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 3
  store atomic i64 1, ptr %STOP seq_cst, align 8
  %MUTEX = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 21
  %call2 = tail call i32 @pthread_mutex_lock(ptr %MUTEX)
  %WAKE = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 23
  %call3 = tail call i32 @pthread_cond_broadcast(ptr %WAKE)
  %call5 = tail call i32 @pthread_mutex_unlock(ptr %MUTEX)
  %WORKERS = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 1
  %3 = load i64, ptr %WORKERS, align 8
  %cmp18 = icmp sgt i64 %3, 0
  br i1 %cmp18, label %for.body.lr.ph, label %return

for.body.lr.ph:
  %THREADS.i = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 27
  br label %for.body

for.body:
  %i.019 = phi i64 [ 0, %for.body.lr.ph ], [ %add, %for.body ]
  %add = add nuw nsw i64 %i.019, 1
  %mul.i = shl i64 %add, 3
  %add.ptr.i = getelementptr i64, ptr %THREADS.i, i64 %mul.i
  %HANDLE = getelementptr inbounds %struct.ThreadRecord, ptr %add.ptr.i, i64 0, i32 2
  %4 = load i64, ptr %HANDLE, align 8
  %call7 = tail call i32 @pthread_join(i64 %4, ptr null)
  %5 = load i64, ptr %WORKERS, align 8
  %cmp = icmp slt i64 %add, %5
  br i1 %cmp, label %for.body, label %return

return:
  %retval.0 = phi i32 [ 0, %entry ], [ 1, %if.end ], [ 1, %if.then1 ], [ 1, %for.body ]
  ret i32 %retval.0
}

declare i32 @pthread_cond_broadcast(ptr)

declare i32 @pthread_join(i64, ptr)

declare i32 @sigfillset(ptr)

declare i32 @pthread_sigmask(i32, ptr, ptr)

declare i32 @pthread_attr_init(ptr)

declare i32 @pthread_attr_setstacksize(ptr, i64)

declare i32 @pthread_create(ptr, ptr, ptr, ptr)

define internal ptr @worker(ptr %record) {
entry:
  %time.i.i = alloca [2 x i64], align 16
  %POOL = getelementptr inbounds %struct.ThreadRecord, ptr %record, i64 0, i32 0
  %0 = load i64, ptr %POOL, align 8
  %1 = inttoptr i64 %0 to ptr
  %NUMBER = getelementptr inbounds %struct.ThreadRecord, ptr %record, i64 0, i32 1
  %2 = load i64, ptr %NUMBER, align 8
  %arraydecay.i.i = getelementptr inbounds [2 x i64], ptr %time.i.i, i64 0, i64 0
  %arrayidx1.i.i = getelementptr inbounds [2 x i64], ptr %time.i.i, i64 0, i64 1
  %GATE.i = getelementptr inbounds %struct.PoolWord, ptr %1, i64 0, i32 8
  %MUTEX.i.i = getelementptr inbounds %struct.PoolWord, ptr %1, i64 0, i32 21
  %ASLEEP.i.i = getelementptr inbounds %struct.PoolWord, ptr %1, i64 0, i32 18
  %STOP.i.i = getelementptr inbounds %struct.PoolWord, ptr %1, i64 0, i32 3
  %WAKE.i.i = getelementptr inbounds %struct.PoolWord, ptr %1, i64 0, i32 23
  %INSIDE = getelementptr inbounds %struct.PoolWord, ptr %1, i64 0, i32 10
  %PROCESSOR = getelementptr inbounds %struct.PoolWord, ptr %1, i64 0, i32 16
  %MODES = getelementptr inbounds %struct.PoolWord, ptr %1, i64 0, i32 15
  %THREADS.i.i = getelementptr inbounds %struct.PoolWord, ptr %1, i64 0, i32 27
  %WORKERS.i = getelementptr inbounds %struct.PoolWord, ptr %1, i64 0, i32 1
  %WAITING = getelementptr inbounds %struct.PoolWord, ptr %1, i64 0, i32 19
  %LEFT = getelementptr inbounds %struct.PoolWord, ptr %1, i64 0, i32 25
  br label %while.cond

while.cond:
  %gate.0 = phi i64 [ 0, %entry ], [ %retval.2.i52, %if.end25 ]
  %call.i.i = call i32 @clock_gettime(i32 $MONOTONIC, ptr %arraydecay.i.i)
  %3 = load i64, ptr %arraydecay.i.i, align 16
  %mul.i.i = mul i64 %3, 1000000000
  %4 = load i64, ptr %arrayidx1.i.i, align 8
  %add.i.i = add i64 %mul.i.i, %4
  br label %do.body.i

do.body.i:
  %5 = load atomic i64, ptr %GATE.i acquire, align 8
  %and.i.i = and i64 %5, 1
  %tobool.not.i.i = icmp eq i64 %and.i.i, 0
  %cmp.not.i.i = icmp eq i64 %5, %gate.0
  %6 = or i1 %cmp.not.i.i, %tobool.not.i.i
  %cond.i.i = select i1 %6, i64 0, i64 %5
  %tobool.not.i = icmp eq i64 %cond.i.i, 0
  br i1 %tobool.not.i, label %do.cond.i, label %while.body

do.cond.i:
  %call2.i = call fastcc zeroext i1 @relax(ptr %1, i64 %add.i.i)
  br i1 %call2.i, label %do.body.i, label %do.end.i

do.end.i:
  %call.i10.i = call i32 @pthread_mutex_lock(ptr %MUTEX.i.i)
  %7 = atomicrmw add ptr %ASLEEP.i.i, i64 1 seq_cst, align 8
  %8 = load atomic i64, ptr %GATE.i seq_cst, align 8
  %and.i19.i.i = and i64 %8, 1
  %tobool.not.i20.i.i = icmp eq i64 %and.i19.i.i, 0
  %cmp.not.i21.i.i = icmp eq i64 %8, %gate.0
  %9 = or i1 %cmp.not.i21.i.i, %tobool.not.i20.i.i
  %cond.i22.i.i = select i1 %9, i64 0, i64 %8
  %tobool.not23.i.i = icmp eq i64 %cond.i22.i.i, 0
  br i1 %tobool.not23.i.i, label %land.rhs.i.i, label %await_gate.exit.thread53

land.rhs.i.i:
  %10 = load atomic i64, ptr %STOP.i.i seq_cst, align 8
  %tobool5.not.i.i = icmp eq i64 %10, 0
  br i1 %tobool5.not.i.i, label %while.body.i.i, label %while.end

while.body.i.i:
  %call7.i.i = call i32 @pthread_cond_wait(ptr %WAKE.i.i, ptr %MUTEX.i.i)
  %11 = load atomic i64, ptr %GATE.i seq_cst, align 8
  %and.i.i.i = and i64 %11, 1
  %tobool.not.i.i.i = icmp eq i64 %and.i.i.i, 0
  %cmp.not.i.i.i = icmp eq i64 %11, %gate.0
  %12 = or i1 %cmp.not.i.i.i, %tobool.not.i.i.i
  %cond.i.i.i = select i1 %12, i64 0, i64 %11
  %tobool.not.i11.i = icmp eq i64 %cond.i.i.i, 0
  br i1 %tobool.not.i11.i, label %land.rhs.i.i, label %await_gate.exit.thread53

await_gate.exit.thread53:
  %cond.i.lcssa.i.i.ph = phi i64 [ %cond.i22.i.i, %do.end.i ], [ %cond.i.i.i, %while.body.i.i ]
  %13 = atomicrmw add ptr %ASLEEP.i.i, i64 -1 seq_cst, align 8
  %call11.i.i55 = call i32 @pthread_mutex_unlock(ptr %MUTEX.i.i)
  br label %while.body

while.body:
  %retval.2.i52 = phi i64 [ %cond.i.lcssa.i.i.ph, %await_gate.exit.thread53 ], [ %cond.i.i, %do.body.i ]
  %14 = atomicrmw add ptr %INSIDE, i64 1 seq_cst, align 8
  %15 = load atomic i64, ptr %GATE.i seq_cst, align 8
  %cmp = icmp eq i64 %15, %retval.2.i52
  br i1 %cmp, label %if.then, label %if.end12

if.then:
  %call3 = call i64 @processor()
  %16 = load i64, ptr %PROCESSOR, align 8
  %cmp4 = icmp eq i64 %call3, %16
  %cmp5 = icmp sgt i64 %call3, -1
  %or.cond = and i1 %cmp5, %cmp4
  br i1 %or.cond, label %if.then6, label %if.end

if.then6:
  call void @move_from(i64 %call3)
  br label %if.end

if.end:
  call void @take_modes(ptr %MODES)
  br i1 %tobool.not.i, label %land.lhs.true8, label %if.end11

land.lhs.true8:
  %17 = load i64, ptr %WORKERS.i, align 8
  %cmp.not9.i = icmp slt i64 %17, 0
  br i1 %cmp.not9.i, label %if.end11, label %for.body.i

for.cond.i:
  %cmp.not.i = icmp sgt i64 %inc.i, %17
  br i1 %cmp.not.i, label %if.end11, label %for.body.i

for.body.i:
  %i.010.i = phi i64 [ %inc.i, %for.cond.i ], [ 0, %land.lhs.true8 ]
  %mul.i.i43 = shl i64 %i.010.i, 3
  %add.ptr.i.i = getelementptr i64, ptr %THREADS.i.i, i64 %mul.i.i43
  %NEXT.i = getelementptr inbounds %struct.ThreadRecord, ptr %add.ptr.i.i, i64 0, i32 3
  %18 = load atomic i64, ptr %NEXT.i monotonic, align 8
  %END.i = getelementptr inbounds %struct.ThreadRecord, ptr %add.ptr.i.i, i64 0, i32 4
  %19 = load i64, ptr %END.i, align 8
  %cmp1.i = icmp slt i64 %18, %19
  %inc.i = add i64 %i.010.i, 1
  br i1 %cmp1.i, label %if.then10, label %for.cond.i

if.then10:
  %20 = load atomic i64, ptr %ASLEEP.i.i seq_cst, align 8
  %cmp17.i = icmp sgt i64 %20, 0
  br i1 %cmp17.i, label %for.body.i47.preheader, label %if.end11

for.body.i47.preheader:
  %.not = icmp eq i64 %20, 1
  %21 = select i1 %.not, i64 1, i64 2
  br label %for.body.i47

for.body.i47:
  %i.08.i = phi i64 [ %inc.i45, %for.body.i47 ], [ 0, %for.body.i47.preheader ]
  %call2.i44 = call i32 @pthread_cond_signal(ptr %WAKE.i.i)
  %inc.i45 = add nuw nsw i64 %i.08.i, 1
  %exitcond.not = icmp eq i64 %inc.i45, %21
  br i1 %exitcond.not, label %if.end11, label %for.body.i47

if.end11:
  call fastcc void @work(ptr %1, i64 %2)
  br label %if.end12

if.end12:
  %22 = atomicrmw add ptr %INSIDE, i64 -1 seq_cst, align 8
  %23 = load atomic i64, ptr %WAITING seq_cst, align 8
  %tobool17.not = icmp ne i64 %23, 0
  %cmp15 = icmp eq i64 %22, 1
  %or.cond42 = select i1 %tobool17.not, i1 %cmp15, i1 false
  br i1 %or.cond42, label %if.then20, label %if.end25

if.then20:
  %call21 = call i32 @pthread_mutex_lock(ptr %MUTEX.i.i)
  %call23 = call i32 @pthread_mutex_unlock(ptr %MUTEX.i.i)
  %call24 = call i32 @pthread_cond_broadcast(ptr %LEFT)
  br label %if.end25

if.end25:
  br label %while.cond

while.end:
  %24 = atomicrmw add ptr %ASLEEP.i.i, i64 -1 seq_cst, align 8
  %call11.i.i = call i32 @pthread_mutex_unlock(ptr %MUTEX.i.i)
  ret ptr null
}

declare i32 @pthread_attr_destroy(ptr)

declare hidden void @move_from(i64)

declare hidden void @take_modes(ptr)

define internal fastcc zeroext i1 @relax(ptr %pool, i64 %since) {
entry:
  %time.i = alloca [2 x i64], align 16
  br label %for.body

for.cond.cleanup:
  %arraydecay.i = getelementptr inbounds [2 x i64], ptr %time.i, i64 0, i64 0
  %call.i = call i32 @clock_gettime(i32 $MONOTONIC, ptr %arraydecay.i)
  %0 = load i64, ptr %arraydecay.i, align 16
  %mul.i = mul i64 %0, 1000000000
  %arrayidx1.i = getelementptr inbounds [2 x i64], ptr %time.i, i64 0, i64 1
  %1 = load i64, ptr %arrayidx1.i, align 8
  %add.i = sub i64 %1, %since
  %sub = add i64 %add.i, %mul.i
  %PATIENCE = getelementptr inbounds %struct.PoolWord, ptr %pool, i64 0, i32 4
  %2 = load i64, ptr %PATIENCE, align 8
  %cmp1 = icmp slt i64 %sub, %2
  ret i1 %cmp1

for.body:
  %i.03 = phi i32 [ 0, %entry ], [ %inc, %for.body ]
  tail call void @pause()
  %inc = add nuw nsw i32 %i.03, 1
  %exitcond.not = icmp eq i32 %inc, 4
  br i1 %exitcond.not, label %for.cond.cleanup, label %for.body
}

declare i32 @clock_gettime(i32, ptr)

declare hidden void @pause()

declare i32 @pthread_cond_wait(ptr, ptr)

declare i32 @pthread_cond_signal(ptr)

declare i64 @llvm.smax.i64(i64, i64)
