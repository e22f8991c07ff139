; Made of locks.c by make parts, from 52d34f62e537c73e. Do not edit.

%struct.LockWord = type { i64, i64, i64, i64, i64, i64, i64, [1 x i64], i64, [7 x i64], i64, [7 x i64], i64, [63 x i64], i64 }

define void @reset(ptr %lock, ptr %set_clock) {
entry:
  %attributes = alloca [16 x i64], align 16
  %MUTEX = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 8
  %call = tail call i32 @pthread_mutex_init(ptr %MUTEX, ptr null)
  %arraydecay = getelementptr inbounds [16 x i64], ptr %attributes, i64 0, i64 0
  %call1 = call i32 @pthread_condattr_init(ptr %arraydecay)
  %cmp.not = icmp eq ptr %set_clock, null
  br i1 %cmp.not, label %if.end, label %if.then

if.then:
  %call3 = call i32 %set_clock(ptr %arraydecay, i32 $WAIT_CLOCK)
  br label %if.end

if.end:
  %WAKE = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 10
  %call5 = call i32 @pthread_cond_init(ptr %WAKE, ptr %arraydecay)
  %call6 = call i64 @pthread_self()
  %READERS = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 12
  %0 = load i64, ptr %READERS, align 8
  %cmp.not8.i = icmp slt i64 %0, 1
  br i1 %cmp.not8.i, label %times.exit, label %for.body.i

for.body.i:
  %i.010.i = phi i64 [ %inc.i, %for.body.i ], [ 1, %if.end ]
  %sum.09.i = phi i64 [ %add.i, %for.body.i ], [ 0, %if.end ]
  %arrayidx1.i = getelementptr i64, ptr %READERS, i64 %i.010.i
  %1 = load i64, ptr %arrayidx1.i, align 8
  %cmp2.i = icmp eq i64 %1, %call6
  %2 = zext i1 %cmp2.i to i64
  %add.i = add i64 %sum.09.i, %2
  %inc.i = add nuw nsw i64 %i.010.i, 1
  %exitcond.i = icmp eq i64 %i.010.i, %0
  br i1 %exitcond.i, label %times.exit, label %for.body.i

times.exit:
  %sum.0.lcssa.i = phi i64 [ 0, %if.end ], [ %add.i, %for.body.i ]
  %OWNER = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 0
  %3 = load i64, ptr %OWNER, align 8
  %cmp8.not = icmp eq i64 %3, %call6
  br i1 %cmp8.not, label %times.exit.if.end11_crit_edge, label %if.then9

times.exit.if.end11_crit_edge:
  %DEPTH12.phi.trans.insert = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 1
  %.pre = load i64, ptr %DEPTH12.phi.trans.insert, align 8
  br label %if.end11

if.then9:
  %WRITING = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 4
  store i64 0, ptr %WRITING, align 8
  %DEPTH = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 1
  store i64 0, ptr %DEPTH, align 8
  store i64 0, ptr %OWNER, align 8
  br label %if.end11

if.end11:
  %4 = phi i64 [ %.pre, %times.exit.if.end11_crit_edge ], [ 0, %if.then9 ]
  %add = add i64 %4, %sum.0.lcssa.i
  %GATE = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 2
  store i64 %add, ptr %GATE, align 8
  %WAITERS = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 14
  store i64 0, ptr %WAITERS, align 8
  store i64 0, ptr %READERS, align 8
  %cmp1433 = icmp sgt i64 %sum.0.lcssa.i, 0
  br i1 %cmp1433, label %for.body, label %for.cond.cleanup

for.cond.cleanup:
  ret void

for.body:
  %5 = phi i64 [ %.pre35, %append.exit.for.body_crit_edge ], [ 0, %if.end11 ]
  %i.034 = phi i64 [ %inc, %append.exit.for.body_crit_edge ], [ 0, %if.end11 ]
  %cmp.i = icmp slt i64 %5, 63
  br i1 %cmp.i, label %if.then.i, label %append.exit

if.then.i:
  %inc.i32 = add nsw i64 %5, 1
  store i64 %inc.i32, ptr %READERS, align 8
  %arrayidx2.i = getelementptr i64, ptr %READERS, i64 %inc.i32
  store i64 %call6, ptr %arrayidx2.i, align 8
  br label %append.exit

append.exit:
  %inc = add nuw nsw i64 %i.034, 1
  %exitcond.not = icmp eq i64 %inc, %sum.0.lcssa.i
  br i1 %exitcond.not, label %for.cond.cleanup, label %append.exit.for.body_crit_edge

append.exit.for.body_crit_edge:
  %.pre35 = load i64, ptr %READERS, align 8
  br label %for.body
}

declare i32 @pthread_mutex_init(ptr, ptr)

declare i32 @pthread_condattr_init(ptr)

declare i32 @pthread_cond_init(ptr, ptr)

declare i64 @pthread_self()

define i32 @acquire(ptr %lock, i64 %kind) {
entry:
  %arguments.i = alloca [2 x ptr], align 16
  %until.i = alloca [2 x i64], align 16
  %call = tail call i64 @pthread_self()
  %cmp = icmp eq i64 %kind, 1
  %cmp1 = icmp eq i64 %kind, 2
  %OWNER = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 0
  %READERS = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 12
  %WAITERS = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 14
  %0 = load i64, ptr %OWNER, align 8
  %1 = load i64, ptr %READERS, align 8
  %or214 = or i64 %1, %0
  %2 = load i64, ptr %WAITERS, align 8
  %or3215 = or i64 %or214, %2
  %tobool.not216 = icmp eq i64 %or3215, 0
  br i1 %tobool.not216, label %while.end, label %while.body.lr.ph

while.body.lr.ph:
  %SERIAL.i = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 3
  %arraydecay.i = getelementptr inbounds [2 x i64], ptr %until.i, i64 0, i64 0
  %arrayidx.i = getelementptr inbounds [2 x i64], ptr %until.i, i64 0, i64 1
  %MUTEX.i = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 8
  %WAKE.i = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 10
  %sub.i = sub i64 0, %call
  %arrayinit.begin.i = getelementptr inbounds [2 x ptr], ptr %arguments.i, i64 0, i64 0
  %arrayinit.element.i = getelementptr inbounds [2 x ptr], ptr %arguments.i, i64 0, i64 1
  %REPORT.i = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 5
  br label %while.body

while.body:
  %3 = phi i64 [ %2, %while.body.lr.ph ], [ %31, %cleanup76 ]
  %4 = phi i64 [ %1, %while.body.lr.ph ], [ %30, %cleanup76 ]
  %5 = phi i64 [ %0, %while.body.lr.ph ], [ %29, %cleanup76 ]
  %slices.0217 = phi i64 [ 0, %while.body.lr.ph ], [ %add, %cleanup76 ]
  %cmp5 = icmp eq i64 %5, %call
  %cmp.not8.i = icmp slt i64 %4, 1
  br i1 %cmp.not8.i, label %if.end, label %for.body.i

for.body.i:
  %i.010.i = phi i64 [ %inc.i, %for.body.i ], [ 1, %while.body ]
  %sum.09.i = phi i64 [ %add.i, %for.body.i ], [ 0, %while.body ]
  %arrayidx1.i = getelementptr i64, ptr %READERS, i64 %i.010.i
  %6 = load i64, ptr %arrayidx1.i, align 8
  %cmp2.i = icmp eq i64 %6, %call
  %7 = zext i1 %cmp2.i to i64
  %add.i = add i64 %sum.09.i, %7
  %inc.i = add nuw nsw i64 %i.010.i, 1
  %exitcond.i = icmp eq i64 %i.010.i, %4
  br i1 %exitcond.i, label %times.exit, label %for.body.i

times.exit:
  %tobool10 = icmp ne i64 %add.i, 0
  %or.cond = select i1 %cmp1, i1 %tobool10, i1 false
  %or.cond.not = xor i1 %or.cond, true
  %brmerge = select i1 %or.cond.not, i1 true, i1 %cmp5
  br i1 %brmerge, label %if.end, label %if.then

if.then:
  %REFUSE = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 6
  %8 = load i64, ptr %REFUSE, align 8
  %9 = inttoptr i64 %8 to ptr
  %call13 = call ptr @PyObject_Vectorcall(ptr %9, ptr null, i64 0, ptr null)
  call fastcc void @take_away(ptr %WAITERS, i64 %call)
  call fastcc void @wake(ptr %lock)
  br label %cleanup84

if.end:
  %tobool10172 = phi i1 [ %tobool10, %times.exit ], [ false, %while.body ]
  %sum.0.lcssa.i171 = phi i64 [ %add.i, %times.exit ], [ 0, %while.body ]
  %tobool16 = icmp ne i64 %5, 0
  %lnot = xor i1 %cmp5, true
  %10 = select i1 %tobool16, i1 %lnot, i1 false
  %cmp22 = icmp ne i64 %4, %sum.0.lcssa.i171
  %11 = select i1 %cmp1, i1 %cmp22, i1 false
  %cmp28 = icmp eq i64 %4, 63
  %12 = select i1 %cmp, i1 %cmp28, i1 false
  %or.cond88 = select i1 %cmp5, i1 true, i1 %tobool10172
  %cmp.not10.i = icmp slt i64 %3, 1
  %or.cond191 = select i1 %or.cond88, i1 true, i1 %cmp.not10.i
  br i1 %or.cond191, label %land.end37, label %land.rhs.i

for.cond.i:
  %cmp.not.i = icmp sgt i64 %inc.i143, %3
  br i1 %cmp.not.i, label %land.end37, label %land.rhs.i

land.rhs.i:
  %i.011.i = phi i64 [ %inc.i143, %for.cond.i ], [ 1, %if.end ]
  %arrayidx1.i142 = getelementptr i64, ptr %WAITERS, i64 %i.011.i
  %13 = load i64, ptr %arrayidx1.i142, align 8
  %cmp2.not.i = icmp eq i64 %13, %call
  br i1 %cmp2.not.i, label %land.end37, label %for.body.i144

for.body.i144:
  %cmp4.i = icmp sgt i64 %13, -1
  %inc.i143 = add i64 %i.011.i, 1
  br i1 %cmp4.i, label %if.end51, label %for.cond.i

land.end37:
  %brmerge138 = select i1 %10, i1 true, i1 %11
  %brmerge139 = select i1 %brmerge138, i1 true, i1 %12
  br i1 %brmerge139, label %if.end51, label %if.then46

if.then46:
  call fastcc void @take_away(ptr %WAITERS, i64 %call)
  br i1 %cmp, label %while.end.thread, label %while.end.thread187

while.end.thread187:
  %GATE188 = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 2
  %14 = load i64, ptr %GATE188, align 8
  %inc189 = add i64 %14, 1
  store i64 %inc189, ptr %GATE188, align 8
  br label %if.else

while.end.thread:
  call fastcc void @wake(ptr %lock)
  %GATE185 = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 2
  %15 = load i64, ptr %GATE185, align 8
  %inc186 = add i64 %15, 1
  store i64 %inc186, ptr %GATE185, align 8
  %.pre = load i64, ptr %READERS, align 8
  br label %if.then79

if.end51:
  br i1 %cmp.not10.i, label %if.then.i, label %for.body.i147

for.body.i147:
  %i.08.i = phi i64 [ %inc.i148, %for.inc.i ], [ 1, %if.end51 ]
  %arrayidx1.i145 = getelementptr i64, ptr %WAITERS, i64 %i.08.i
  %16 = load i64, ptr %arrayidx1.i145, align 8
  %cmp2.i146 = icmp eq i64 %16, %call
  br i1 %cmp2.i146, label %find.exit, label %for.inc.i

for.inc.i:
  %inc.i148 = add i64 %i.08.i, 1
  %cmp.not.i149 = icmp sgt i64 %inc.i148, %3
  br i1 %cmp.not.i149, label %if.then55, label %for.body.i147

find.exit:
  %tobool54.not = icmp eq i64 %i.08.i, 0
  %cmp.i = icmp slt i64 %3, 63
  %or.cond192 = select i1 %tobool54.not, i1 %cmp.i, i1 false
  br i1 %or.cond192, label %if.then.i, label %if.end57

if.then55:
  %cmp.i.old = icmp slt i64 %3, 63
  br i1 %cmp.i.old, label %if.then.i, label %if.end57

if.then.i:
  %inc.i150 = add nsw i64 %3, 1
  store i64 %inc.i150, ptr %WAITERS, align 8
  %arrayidx2.i = getelementptr i64, ptr %WAITERS, i64 %inc.i150
  store i64 %call, ptr %arrayidx2.i, align 8
  br label %if.end57

if.end57:
  %17 = load i64, ptr %SERIAL.i, align 8
  %call.i = call ptr @PyEval_SaveThread()
  %call1.i = call i32 @clock_gettime(i32 $WAIT_CLOCK, ptr %arraydecay.i)
  %18 = load i64, ptr %arrayidx.i, align 8
  %add.i151 = add i64 %18, $SLICE
  %div.i = udiv i64 %add.i151, 1000000000
  %19 = load i64, ptr %arraydecay.i, align 16
  %add3.i = add i64 %div.i, %19
  store i64 %add3.i, ptr %arraydecay.i, align 16
  %rem.i = urem i64 %add.i151, 1000000000
  store i64 %rem.i, ptr %arrayidx.i, align 8
  %call5.i = call i32 @pthread_mutex_lock(ptr %MUTEX.i)
  br label %land.rhs.i153

land.rhs.i153:
  %20 = load volatile i64, ptr %SERIAL.i, align 8
  %cmp.i152 = icmp eq i64 %20, %17
  br i1 %cmp.i152, label %while.body.i, label %while.end.i

while.body.i:
  %call9.i = call i32 @pthread_cond_timedwait(ptr %WAKE.i, ptr %MUTEX.i, ptr %arraydecay.i)
  %cmp10.not.i = icmp eq i32 %call9.i, 0
  br i1 %cmp10.not.i, label %land.rhs.i153, label %while.end.i

while.end.i:
  %slept.0.lcssa.i = phi i32 [ 1, %while.body.i ], [ 0, %land.rhs.i153 ]
  %call12.i = call i32 @pthread_mutex_unlock(ptr %MUTEX.i)
  call void @PyEval_RestoreThread(ptr %call.i)
  %21 = load i64, ptr %WAITERS, align 8
  %cmp.not7.i.i.i = icmp slt i64 %21, 1
  br i1 %cmp.not7.i.i.i, label %renumber.exit.i, label %for.body.i.i.i

for.body.i.i.i:
  %i.08.i.i.i = phi i64 [ %inc.i.i.i, %for.inc.i.i.i ], [ 1, %while.end.i ]
  %arrayidx1.i.i.i = getelementptr i64, ptr %WAITERS, i64 %i.08.i.i.i
  %22 = load i64, ptr %arrayidx1.i.i.i, align 8
  %cmp2.i.i.i = icmp eq i64 %22, %call
  br i1 %cmp2.i.i.i, label %find.exit.i.i, label %for.inc.i.i.i

for.inc.i.i.i:
  %inc.i.i.i = add i64 %i.08.i.i.i, 1
  %cmp.not.i.i.i = icmp sgt i64 %inc.i.i.i, %21
  br i1 %cmp.not.i.i.i, label %renumber.exit.i, label %for.body.i.i.i

find.exit.i.i:
  %tobool.not.i.i = icmp eq i64 %i.08.i.i.i, 0
  br i1 %tobool.not.i.i, label %renumber.exit.i, label %if.then.i.i

if.then.i.i:
  %arrayidx1.i.i.i.le = getelementptr i64, ptr %WAITERS, i64 %i.08.i.i.i
  store i64 %sub.i, ptr %arrayidx1.i.i.i.le, align 8
  br label %renumber.exit.i

renumber.exit.i:
  %call13.i = call i32 @PyErr_CheckSignals()
  %23 = load i64, ptr %WAITERS, align 8
  %cmp.not7.i.i33.i = icmp slt i64 %23, 1
  br i1 %cmp.not7.i.i33.i, label %wait.exit, label %for.body.i.i37.i

for.body.i.i37.i:
  %i.08.i.i34.i = phi i64 [ %inc.i.i38.i, %for.inc.i.i40.i ], [ 1, %renumber.exit.i ]
  %arrayidx1.i.i35.i = getelementptr i64, ptr %WAITERS, i64 %i.08.i.i34.i
  %24 = load i64, ptr %arrayidx1.i.i35.i, align 8
  %cmp2.i.i36.i = icmp eq i64 %24, %sub.i
  br i1 %cmp2.i.i36.i, label %find.exit.i42.i, label %for.inc.i.i40.i

for.inc.i.i40.i:
  %inc.i.i38.i = add i64 %i.08.i.i34.i, 1
  %cmp.not.i.i39.i = icmp sgt i64 %inc.i.i38.i, %23
  br i1 %cmp.not.i.i39.i, label %wait.exit, label %for.body.i.i37.i

find.exit.i42.i:
  %tobool.not.i41.i = icmp eq i64 %i.08.i.i34.i, 0
  br i1 %tobool.not.i41.i, label %wait.exit, label %if.then.i44.i

if.then.i44.i:
  %arrayidx1.i.i35.i.le = getelementptr i64, ptr %WAITERS, i64 %i.08.i.i34.i
  store i64 %call, ptr %arrayidx1.i.i35.i.le, align 8
  br label %wait.exit

wait.exit:
  %tobool16.not.i = icmp eq i32 %call13.i, 0
  %cond.i = select i1 %tobool16.not.i, i32 %slept.0.lcssa.i, i32 -1
  br i1 %tobool16.not.i, label %if.end62, label %if.then60

if.then60:
  call fastcc void @take_away(ptr %WAITERS, i64 %call)
  call fastcc void @wake(ptr %lock)
  br label %cleanup84

if.end62:
  %conv190 = zext i32 %cond.i to i64
  %add = add i64 %slices.0217, %conv190
  %tobool63.not = icmp ne i32 %cond.i, 0
  %25 = and i64 %add, 31
  %cmp65 = icmp eq i64 %25, 0
  %or.cond141 = select i1 %tobool63.not, i1 %cmp65, i1 false
  br i1 %or.cond141, label %land.lhs.true67, label %cleanup76

land.lhs.true67:
  %call.i156 = call ptr @PyLong_FromUnsignedLongLong(i64 %add)
  %26 = load i64, ptr %OWNER, align 8
  %call1.i157 = call ptr @PyLong_FromUnsignedLongLong(i64 %26)
  store ptr %call1.i157, ptr %arrayinit.begin.i, align 16
  store ptr %call.i156, ptr %arrayinit.element.i, align 8
  %27 = load i64, ptr %REPORT.i, align 8
  %28 = inttoptr i64 %27 to ptr
  %call2.i = call ptr @PyObject_Vectorcall(ptr %28, ptr %arrayinit.begin.i, i64 2, ptr null)
  call void @Py_DecRef(ptr %call1.i157)
  call void @Py_DecRef(ptr %call.i156)
  %cmp.i158.not = icmp eq ptr %call2.i, null
  br i1 %cmp.i158.not, label %if.then69, label %report.exit.thread

report.exit.thread:
  call void @Py_DecRef(ptr %call2.i)
  br label %cleanup76

if.then69:
  call fastcc void @take_away(ptr %WAITERS, i64 %call)
  call fastcc void @wake(ptr %lock)
  br label %cleanup84

cleanup76:
  %29 = load i64, ptr %OWNER, align 8
  %30 = load i64, ptr %READERS, align 8
  %or = or i64 %30, %29
  %31 = load i64, ptr %WAITERS, align 8
  %or3 = or i64 %or, %31
  %tobool.not = icmp eq i64 %or3, 0
  br i1 %tobool.not, label %while.end, label %while.body

while.end:
  %32 = phi i64 [ %1, %entry ], [ %30, %cleanup76 ]
  %GATE = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 2
  %33 = load i64, ptr %GATE, align 8
  %inc = add i64 %33, 1
  store i64 %inc, ptr %GATE, align 8
  br i1 %cmp, label %if.then79, label %if.else

if.then79:
  %34 = phi i64 [ %.pre, %while.end.thread ], [ %32, %while.end ]
  %cmp.i161 = icmp slt i64 %34, 63
  br i1 %cmp.i161, label %if.then.i164, label %cleanup84

if.then.i164:
  %inc.i162 = add nsw i64 %34, 1
  store i64 %inc.i162, ptr %READERS, align 8
  %arrayidx2.i163 = getelementptr i64, ptr %READERS, i64 %inc.i162
  store i64 %call, ptr %arrayidx2.i163, align 8
  br label %cleanup84

if.else:
  store i64 %call, ptr %OWNER, align 8
  %DEPTH = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 1
  %35 = load i64, ptr %DEPTH, align 8
  %inc82 = add i64 %35, 1
  store i64 %inc82, ptr %DEPTH, align 8
  br label %cleanup84

cleanup84:
  %retval.4 = phi i32 [ 0, %if.then.i164 ], [ 0, %if.then79 ], [ 0, %if.else ], [ -1, %if.then ], [ -1, %if.then60 ], [ -1, %if.then69 ]
  ret i32 %retval.4
}

declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)

define internal fastcc void @take_away(ptr %row, i64 %thread) {
entry:
  %0 = load i64, ptr %row, align 8
  %cmp.not7.i = icmp slt i64 %0, 1
  br i1 %cmp.not7.i, label %if.end, label %for.body.i

for.body.i:
  %i.08.i = phi i64 [ %inc.i, %for.inc.i ], [ 1, %entry ]
  %arrayidx1.i = getelementptr i64, ptr %row, i64 %i.08.i
  %1 = load i64, ptr %arrayidx1.i, align 8
  %cmp2.i = icmp eq i64 %1, %thread
  br i1 %cmp2.i, label %find.exit, label %for.inc.i

for.inc.i:
  %inc.i = add i64 %i.08.i, 1
  %cmp.not.i = icmp sgt i64 %inc.i, %0
  br i1 %cmp.not.i, label %if.end, label %for.body.i

find.exit:
  %tobool.not = icmp eq i64 %i.08.i, 0
  br i1 %tobool.not, label %if.end, label %if.then

if.then:
  %arrayidx1.i.le = getelementptr i64, ptr %row, i64 %i.08.i
  %add = add i64 %i.08.i, 1
  %arrayidx1 = getelementptr i64, ptr %row, i64 %add
  %dec = add i64 %0, -1
  store i64 %dec, ptr %row, align 8
  %sub = sub i64 %0, %i.08.i
  %mul = shl i64 %sub, 3
  %call3 = tail call ptr @memmove(ptr %arrayidx1.i.le, ptr %arrayidx1, i64 %mul)
  br label %if.end

if.end:
  ret void
}

define internal fastcc void @wake(ptr %lock) {
entry:
  %WAITERS = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 14
  %0 = load i64, ptr %WAITERS, align 8
  %cmp = icmp slt i64 %0, 1
  br i1 %cmp, label %return, label %if.end

if.end:
  %MUTEX.i = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 8
  %call.i = tail call i32 @pthread_mutex_lock(ptr %MUTEX.i)
  %SERIAL = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 3
  %1 = load i64, ptr %SERIAL, align 8
  %inc = add i64 %1, 1
  store i64 %inc, ptr %SERIAL, align 8
  %WAKE = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 10
  %call = tail call i32 @pthread_cond_broadcast(ptr %WAKE)
  %call.i6 = tail call i32 @pthread_mutex_unlock(ptr %MUTEX.i)
  br label %return

return:
  ret void
}

define void @release(ptr %lock, i64 %kind) {
entry:
  %call = tail call i64 @pthread_self()
  %GATE = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 2
  %0 = load i64, ptr %GATE, align 8
  %dec = add i64 %0, -1
  store i64 %dec, ptr %GATE, align 8
  %cmp = icmp eq i64 %kind, 1
  br i1 %cmp, label %if.then, label %if.else

if.then:
  %READERS = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 12
  tail call fastcc void @take_away(ptr %READERS, i64 %call)
  br label %if.end4.sink.split

if.else:
  %DEPTH = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 1
  %1 = load i64, ptr %DEPTH, align 8
  %dec1 = add i64 %1, -1
  store i64 %dec1, ptr %DEPTH, align 8
  %cmp2 = icmp eq i64 %dec1, 0
  br i1 %cmp2, label %if.then3, label %if.end4

if.then3:
  %OWNER = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 0
  store i64 0, ptr %OWNER, align 8
  br label %if.end4.sink.split

if.end4.sink.split:
  tail call fastcc void @wake(ptr %lock)
  br label %if.end4

if.end4:
  ret void
}

define ptr @hold(ptr %capsule, ptr %arguments, i64 %count) {
entry:
  %call = tail call ptr @PyCapsule_GetPointer(ptr %capsule, ptr null)
  %0 = load i64, ptr %call, align 8
  %1 = inttoptr i64 %0 to ptr
  %arrayidx1 = getelementptr i64, ptr %call, i64 1
  %2 = load i64, ptr %arrayidx1, align 8
  %call2 = tail call i32 @acquire(ptr %1, i64 %2)
  %tobool.not = icmp eq i32 %call2, 0
  br i1 %tobool.not, label %if.end, label %cleanup

if.end:
  %3 = load ptr, ptr %arguments, align 8
  %add.ptr = getelementptr ptr, ptr %arguments, i64 1
  %sub = add i64 %count, -1
  %call4 = tail call ptr @PyObject_Vectorcall(ptr %3, ptr %add.ptr, i64 %sub, ptr null)
  tail call void @release(ptr %1, i64 %2)
  br label %cleanup

cleanup:
  %retval.0 = phi ptr [ %call4, %if.end ], [ null, %entry ]
  ret ptr %retval.0
}

declare ptr @PyCapsule_GetPointer(ptr, ptr)

declare ptr @memmove(ptr, ptr, i64)

declare i32 @pthread_cond_broadcast(ptr)

declare i32 @pthread_mutex_lock(ptr)

declare i32 @pthread_mutex_unlock(ptr)

declare ptr @PyEval_SaveThread()

declare i32 @clock_gettime(i32, ptr)

declare i32 @pthread_cond_timedwait(ptr, ptr, ptr)

declare void @PyEval_RestoreThread(ptr)

declare i32 @PyErr_CheckSignals()

declare ptr @PyLong_FromUnsignedLongLong(i64)

declare void @Py_DecRef(ptr)
