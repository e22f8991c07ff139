; Made of locks.c by make parts FREE_THREADED, from 9c4d6e1080e8da06. Do not edit.

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
  %MUTEX.i = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 8
  %call.i = tail call i32 @pthread_mutex_lock(ptr %MUTEX.i)
  %OWNER = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 0
  %READERS = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 12
  %WAITERS = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 14
  %0 = load i64, ptr %OWNER, align 8
  %1 = load i64, ptr %READERS, align 8
  %or229 = or i64 %1, %0
  %2 = load i64, ptr %WAITERS, align 8
  %or3230 = or i64 %or229, %2
  %tobool.not231 = icmp eq i64 %or3230, 0
  br i1 %tobool.not231, label %while.end, label %while.body.lr.ph

while.body.lr.ph:
  %SERIAL.i159 = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 3
  %arraydecay.i = getelementptr inbounds [2 x i64], ptr %until.i, i64 0, i64 0
  %arrayidx.i = getelementptr inbounds [2 x i64], ptr %until.i, i64 0, i64 1
  %WAKE.i162 = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 10
  %sub.i = sub i64 0, %call
  %arrayinit.begin.i = getelementptr inbounds [2 x ptr], ptr %arguments.i, i64 0, i64 0
  %arrayinit.element.i = getelementptr inbounds [2 x ptr], ptr %arguments.i, i64 0, i64 1
  %REPORT.i = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 5
  br label %while.body

while.body:
  %3 = phi i64 [ %2, %while.body.lr.ph ], [ %32, %cleanup76 ]
  %4 = phi i64 [ %1, %while.body.lr.ph ], [ %31, %cleanup76 ]
  %5 = phi i64 [ %0, %while.body.lr.ph ], [ %30, %cleanup76 ]
  %slices.0232 = phi i64 [ 0, %while.body.lr.ph ], [ %add, %cleanup76 ]
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
  %call.i143 = call i32 @pthread_mutex_unlock(ptr %MUTEX.i)
  %call13 = call ptr @PyObject_Vectorcall(ptr %9, ptr null, i64 0, ptr null)
  %call.i145 = call i32 @pthread_mutex_lock(ptr %MUTEX.i)
  call fastcc void @give_up(ptr %lock, i64 %call)
  br label %cleanup84

if.end:
  %tobool10187 = phi i1 [ %tobool10, %times.exit ], [ false, %while.body ]
  %sum.0.lcssa.i186 = phi i64 [ %add.i, %times.exit ], [ 0, %while.body ]
  %tobool16 = icmp ne i64 %5, 0
  %lnot = xor i1 %cmp5, true
  %10 = select i1 %tobool16, i1 %lnot, i1 false
  %cmp22 = icmp ne i64 %4, %sum.0.lcssa.i186
  %11 = select i1 %cmp1, i1 %cmp22, i1 false
  %cmp28 = icmp eq i64 %4, 63
  %12 = select i1 %cmp, i1 %cmp28, i1 false
  %or.cond88 = select i1 %cmp5, i1 true, i1 %tobool10187
  %cmp.not10.i = icmp slt i64 %3, 1
  %or.cond206 = select i1 %or.cond88, i1 true, i1 %cmp.not10.i
  br i1 %or.cond206, label %land.end37, label %land.rhs.i

for.cond.i:
  %cmp.not.i = icmp sgt i64 %inc.i147, %3
  br i1 %cmp.not.i, label %land.end37, label %land.rhs.i

land.rhs.i:
  %i.011.i = phi i64 [ %inc.i147, %for.cond.i ], [ 1, %if.end ]
  %arrayidx1.i146 = getelementptr i64, ptr %WAITERS, i64 %i.011.i
  %13 = load i64, ptr %arrayidx1.i146, align 8
  %cmp2.not.i = icmp eq i64 %13, %call
  br i1 %cmp2.not.i, label %land.end37, label %for.body.i148

for.body.i148:
  %cmp4.i = icmp sgt i64 %13, -1
  %inc.i147 = add i64 %i.011.i, 1
  br i1 %cmp4.i, label %if.end51, label %for.cond.i

land.end37:
  %brmerge138 = select i1 %10, i1 true, i1 %11
  %brmerge139 = select i1 %brmerge138, i1 true, i1 %12
  br i1 %brmerge139, label %if.end51, label %if.then46

if.then46:
  call fastcc void @take_away(ptr %WAITERS, i64 %call)
  br i1 %cmp, label %if.then49, label %while.end.thread202

while.end.thread202:
  %GATE203 = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 2
  %14 = load i64, ptr %GATE203, align 8
  %inc204 = add i64 %14, 1
  store i64 %inc204, ptr %GATE203, align 8
  br label %if.else

if.then49:
  %15 = load i64, ptr %WAITERS, align 8
  %cmp.i = icmp slt i64 %15, 1
  br i1 %cmp.i, label %while.end.thread, label %if.end.i

if.end.i:
  %16 = load i64, ptr %SERIAL.i159, align 8
  %inc.i149 = add i64 %16, 1
  store i64 %inc.i149, ptr %SERIAL.i159, align 8
  %call.i150 = call i32 @pthread_cond_broadcast(ptr %WAKE.i162)
  br label %while.end.thread

if.end51:
  br i1 %cmp.not10.i, label %if.then.i, label %for.body.i153

for.body.i153:
  %i.08.i = phi i64 [ %inc.i154, %for.inc.i ], [ 1, %if.end51 ]
  %arrayidx1.i151 = getelementptr i64, ptr %WAITERS, i64 %i.08.i
  %17 = load i64, ptr %arrayidx1.i151, align 8
  %cmp2.i152 = icmp eq i64 %17, %call
  br i1 %cmp2.i152, label %find.exit, label %for.inc.i

for.inc.i:
  %inc.i154 = add i64 %i.08.i, 1
  %cmp.not.i155 = icmp sgt i64 %inc.i154, %3
  br i1 %cmp.not.i155, label %if.then55, label %for.body.i153

find.exit:
  %tobool54.not = icmp eq i64 %i.08.i, 0
  %cmp.i156 = icmp slt i64 %3, 63
  %or.cond207 = select i1 %tobool54.not, i1 %cmp.i156, i1 false
  br i1 %or.cond207, label %if.then.i, label %if.end57

if.then55:
  %cmp.i156.old = icmp slt i64 %3, 63
  br i1 %cmp.i156.old, label %if.then.i, label %if.end57

if.then.i:
  %inc.i157 = add nsw i64 %3, 1
  store i64 %inc.i157, ptr %WAITERS, align 8
  %arrayidx2.i = getelementptr i64, ptr %WAITERS, i64 %inc.i157
  store i64 %call, ptr %arrayidx2.i, align 8
  br label %if.end57

if.end57:
  %18 = load i64, ptr %SERIAL.i159, align 8
  %call.i.i = call i32 @pthread_mutex_unlock(ptr %MUTEX.i)
  %call.i160 = call ptr @PyEval_SaveThread()
  %call1.i = call i32 @clock_gettime(i32 $WAIT_CLOCK, ptr %arraydecay.i)
  %19 = load i64, ptr %arrayidx.i, align 8
  %add.i161 = add i64 %19, $SLICE
  %div.i = udiv i64 %add.i161, 1000000000
  %20 = load i64, ptr %arraydecay.i, align 16
  %add3.i = add i64 %div.i, %20
  store i64 %add3.i, ptr %arraydecay.i, align 16
  %rem.i = urem i64 %add.i161, 1000000000
  store i64 %rem.i, ptr %arrayidx.i, align 8
  %call5.i = call i32 @pthread_mutex_lock(ptr %MUTEX.i)
  br label %land.rhs.i164

land.rhs.i164:
  %21 = load volatile i64, ptr %SERIAL.i159, align 8
  %cmp.i163 = icmp eq i64 %21, %18
  br i1 %cmp.i163, label %while.body.i, label %while.end.i

while.body.i:
  %call9.i = call i32 @pthread_cond_timedwait(ptr %WAKE.i162, ptr %MUTEX.i, ptr %arraydecay.i)
  %cmp10.not.i = icmp eq i32 %call9.i, 0
  br i1 %cmp10.not.i, label %land.rhs.i164, label %while.end.i

while.end.i:
  %slept.0.lcssa.i = phi i32 [ 1, %while.body.i ], [ 0, %land.rhs.i164 ]
  %call12.i = call i32 @pthread_mutex_unlock(ptr %MUTEX.i)
  call void @PyEval_RestoreThread(ptr %call.i160)
  %call.i34.i = call i32 @pthread_mutex_lock(ptr %MUTEX.i)
  %22 = load i64, ptr %WAITERS, align 8
  %cmp.not7.i.i.i = icmp slt i64 %22, 1
  br i1 %cmp.not7.i.i.i, label %renumber.exit.i, label %for.body.i.i.i

for.body.i.i.i:
  %i.08.i.i.i = phi i64 [ %inc.i.i.i, %for.inc.i.i.i ], [ 1, %while.end.i ]
  %arrayidx1.i.i.i = getelementptr i64, ptr %WAITERS, i64 %i.08.i.i.i
  %23 = load i64, ptr %arrayidx1.i.i.i, align 8
  %cmp2.i.i.i = icmp eq i64 %23, %call
  br i1 %cmp2.i.i.i, label %find.exit.i.i, label %for.inc.i.i.i

for.inc.i.i.i:
  %inc.i.i.i = add i64 %i.08.i.i.i, 1
  %cmp.not.i.i.i = icmp sgt i64 %inc.i.i.i, %22
  br i1 %cmp.not.i.i.i, label %renumber.exit.i, label %for.body.i.i.i

find.exit.i.i:
  %tobool.not.i.i = icmp eq i64 %i.08.i.i.i, 0
  br i1 %tobool.not.i.i, label %renumber.exit.i, label %if.then.i.i

if.then.i.i:
  %arrayidx1.i.i.i.le = getelementptr i64, ptr %WAITERS, i64 %i.08.i.i.i
  store i64 %sub.i, ptr %arrayidx1.i.i.i.le, align 8
  br label %renumber.exit.i

renumber.exit.i:
  %call.i36.i = call i32 @pthread_mutex_unlock(ptr %MUTEX.i)
  %call13.i = call i32 @PyErr_CheckSignals()
  %call.i38.i = call i32 @pthread_mutex_lock(ptr %MUTEX.i)
  %24 = load i64, ptr %WAITERS, align 8
  %cmp.not7.i.i39.i = icmp slt i64 %24, 1
  br i1 %cmp.not7.i.i39.i, label %wait.exit, label %for.body.i.i43.i

for.body.i.i43.i:
  %i.08.i.i40.i = phi i64 [ %inc.i.i44.i, %for.inc.i.i46.i ], [ 1, %renumber.exit.i ]
  %arrayidx1.i.i41.i = getelementptr i64, ptr %WAITERS, i64 %i.08.i.i40.i
  %25 = load i64, ptr %arrayidx1.i.i41.i, align 8
  %cmp2.i.i42.i = icmp eq i64 %25, %sub.i
  br i1 %cmp2.i.i42.i, label %find.exit.i48.i, label %for.inc.i.i46.i

for.inc.i.i46.i:
  %inc.i.i44.i = add i64 %i.08.i.i40.i, 1
  %cmp.not.i.i45.i = icmp sgt i64 %inc.i.i44.i, %24
  br i1 %cmp.not.i.i45.i, label %wait.exit, label %for.body.i.i43.i

find.exit.i48.i:
  %tobool.not.i47.i = icmp eq i64 %i.08.i.i40.i, 0
  br i1 %tobool.not.i47.i, label %wait.exit, label %if.then.i50.i

if.then.i50.i:
  %arrayidx1.i.i41.i.le = getelementptr i64, ptr %WAITERS, i64 %i.08.i.i40.i
  store i64 %call, ptr %arrayidx1.i.i41.i.le, align 8
  br label %wait.exit

wait.exit:
  %tobool16.not.i = icmp eq i32 %call13.i, 0
  %cond.i = select i1 %tobool16.not.i, i32 %slept.0.lcssa.i, i32 -1
  br i1 %tobool16.not.i, label %if.end62, label %if.then60

if.then60:
  call fastcc void @give_up(ptr %lock, i64 %call)
  br label %cleanup84

if.end62:
  %conv205 = zext i32 %cond.i to i64
  %add = add i64 %slices.0232, %conv205
  %tobool63.not = icmp ne i32 %cond.i, 0
  %26 = and i64 %add, 31
  %cmp65 = icmp eq i64 %26, 0
  %or.cond141 = select i1 %tobool63.not, i1 %cmp65, i1 false
  br i1 %or.cond141, label %land.lhs.true67, label %cleanup76

land.lhs.true67:
  %call.i166 = call ptr @PyLong_FromUnsignedLongLong(i64 %add)
  %27 = load i64, ptr %OWNER, align 8
  %call1.i167 = call ptr @PyLong_FromUnsignedLongLong(i64 %27)
  store ptr %call1.i167, ptr %arrayinit.begin.i, align 16
  store ptr %call.i166, ptr %arrayinit.element.i, align 8
  %28 = load i64, ptr %REPORT.i, align 8
  %29 = inttoptr i64 %28 to ptr
  %call.i.i169 = call i32 @pthread_mutex_unlock(ptr %MUTEX.i)
  %call2.i = call ptr @PyObject_Vectorcall(ptr %29, ptr %arrayinit.begin.i, i64 2, ptr null)
  %call.i12.i = call i32 @pthread_mutex_lock(ptr %MUTEX.i)
  call void @Py_DecRef(ptr %call1.i167)
  call void @Py_DecRef(ptr %call.i166)
  %cmp.i170.not = icmp eq ptr %call2.i, null
  br i1 %cmp.i170.not, label %if.then69, label %report.exit.thread

report.exit.thread:
  call void @Py_DecRef(ptr %call2.i)
  br label %cleanup76

if.then69:
  call fastcc void @give_up(ptr %lock, i64 %call)
  br label %cleanup84

cleanup76:
  %30 = load i64, ptr %OWNER, align 8
  %31 = load i64, ptr %READERS, align 8
  %or = or i64 %31, %30
  %32 = load i64, ptr %WAITERS, align 8
  %or3 = or i64 %or, %32
  %tobool.not = icmp eq i64 %or3, 0
  br i1 %tobool.not, label %while.end, label %while.body

while.end.thread:
  %GATE200 = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 2
  %33 = load i64, ptr %GATE200, align 8
  %inc201 = add i64 %33, 1
  store i64 %inc201, ptr %GATE200, align 8
  %.pre = load i64, ptr %READERS, align 8
  br label %if.then79

while.end:
  %34 = phi i64 [ %1, %entry ], [ %31, %cleanup76 ]
  %GATE = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 2
  %35 = load i64, ptr %GATE, align 8
  %inc = add i64 %35, 1
  store i64 %inc, ptr %GATE, align 8
  br i1 %cmp, label %if.then79, label %if.else

if.then79:
  %36 = phi i64 [ %.pre, %while.end.thread ], [ %34, %while.end ]
  %cmp.i173 = icmp slt i64 %36, 63
  br i1 %cmp.i173, label %if.then.i176, label %if.end83

if.then.i176:
  %inc.i174 = add nsw i64 %36, 1
  store i64 %inc.i174, ptr %READERS, align 8
  %arrayidx2.i175 = getelementptr i64, ptr %READERS, i64 %inc.i174
  store i64 %call, ptr %arrayidx2.i175, align 8
  br label %if.end83

if.else:
  store i64 %call, ptr %OWNER, align 8
  %DEPTH = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 1
  %37 = load i64, ptr %DEPTH, align 8
  %inc82 = add i64 %37, 1
  store i64 %inc82, ptr %DEPTH, align 8
  br label %if.end83

if.end83:
  %call.i180 = call i32 @pthread_mutex_unlock(ptr %MUTEX.i)
  br label %cleanup84

cleanup84:
  %retval.4 = phi i32 [ 0, %if.end83 ], [ -1, %if.then ], [ -1, %if.then60 ], [ -1, %if.then69 ]
  ret i32 %retval.4
}

declare ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)

define internal fastcc void @give_up(ptr %lock, i64 %me) {
entry:
  %WAITERS = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 14
  tail call fastcc void @take_away(ptr %WAITERS, i64 %me)
  %0 = load i64, ptr %WAITERS, align 8
  %cmp.i = icmp slt i64 %0, 1
  br i1 %cmp.i, label %wake.exit, label %if.end.i

if.end.i:
  %SERIAL.i = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 3
  %1 = load i64, ptr %SERIAL.i, align 8
  %inc.i = add i64 %1, 1
  store i64 %inc.i, ptr %SERIAL.i, align 8
  %WAKE.i = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 10
  %call.i = tail call i32 @pthread_cond_broadcast(ptr %WAKE.i)
  br label %wake.exit

wake.exit:
  %MUTEX.i = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 8
  %call.i1 = tail call i32 @pthread_mutex_unlock(ptr %MUTEX.i)
  ret void
}

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

define void @release(ptr %lock, i64 %kind) {
entry:
  %call = tail call i64 @pthread_self()
  %MUTEX.i = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 8
  %call.i = tail call i32 @pthread_mutex_lock(ptr %MUTEX.i)
  %GATE = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 2
  %0 = load i64, ptr %GATE, align 8
  %dec = add i64 %0, -1
  store i64 %dec, ptr %GATE, align 8
  %cmp = icmp eq i64 %kind, 1
  br i1 %cmp, label %if.then, label %if.else

if.then:
  %READERS = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 12
  tail call fastcc void @take_away(ptr %READERS, i64 %call)
  %WAITERS.i = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 14
  %1 = load i64, ptr %WAITERS.i, align 8
  %cmp.i = icmp slt i64 %1, 1
  br i1 %cmp.i, label %if.end4, label %if.end4.sink.split

if.else:
  %DEPTH = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 1
  %2 = load i64, ptr %DEPTH, align 8
  %dec1 = add i64 %2, -1
  store i64 %dec1, ptr %DEPTH, align 8
  %cmp2 = icmp eq i64 %dec1, 0
  br i1 %cmp2, label %if.then3, label %if.end4

if.then3:
  %OWNER = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 0
  store i64 0, ptr %OWNER, align 8
  %WAITERS.i13 = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 14
  %3 = load i64, ptr %WAITERS.i13, align 8
  %cmp.i14 = icmp slt i64 %3, 1
  br i1 %cmp.i14, label %if.end4, label %if.end4.sink.split

if.end4.sink.split:
  %SERIAL.i = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 3
  %4 = load i64, ptr %SERIAL.i, align 8
  %inc.i16 = add i64 %4, 1
  store i64 %inc.i16, ptr %SERIAL.i, align 8
  %WAKE.i17 = getelementptr inbounds %struct.LockWord, ptr %lock, i64 0, i32 10
  %call.i18 = tail call i32 @pthread_cond_broadcast(ptr %WAKE.i17)
  br label %if.end4

if.end4:
  %call.i22 = tail call i32 @pthread_mutex_unlock(ptr %MUTEX.i)
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

declare i32 @pthread_mutex_lock(ptr)

declare i32 @pthread_mutex_unlock(ptr)

declare ptr @memmove(ptr, ptr, i64)

declare i32 @pthread_cond_broadcast(ptr)

declare ptr @PyEval_SaveThread()

declare i32 @clock_gettime(i32, ptr)

declare i32 @pthread_cond_timedwait(ptr, ptr, ptr)

declare void @PyEval_RestoreThread(ptr)

declare i32 @PyErr_CheckSignals()

declare ptr @PyLong_FromUnsignedLongLong(i64)

declare void @Py_DecRef(ptr)
