; Made of interrupts.c by make parts, from e48eac8f6dfc405b. Do not edit.

%struct.ContextLayout = type { i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64 }
%struct.CallWord = type { i64, i64, i64, i64, i64 }
%struct.Polled = type { ptr, ptr, ptr }

define void @begin(ptr %context) {
entry:
  %time.i = alloca [2 x i64], align 16
  %MAIN = getelementptr inbounds %struct.ContextLayout, ptr %context, i64 0, i32 10
  %0 = load i64, ptr %MAIN, align 8
  %1 = inttoptr i64 %0 to ptr
  %2 = load i64, ptr %1, align 8
  %call = tail call i64 @pthread_self()
  %cmp = icmp eq i64 %2, %call
  %3 = zext i1 %cmp to i64
  %WATCHES = getelementptr inbounds %struct.ContextLayout, ptr %context, i64 0, i32 5
  store i64 %3, ptr %WATCHES, align 8
  %arraydecay.i = getelementptr inbounds [2 x i64], ptr %time.i, i64 0, i64 0
  %call.i = call i32 @clock_gettime(i32 $MONOTONIC, ptr %arraydecay.i)
  %4 = load i64, ptr %arraydecay.i, align 16
  %mul.i = mul i64 %4, 1000000000
  %arrayidx1.i = getelementptr inbounds [2 x i64], ptr %time.i, i64 0, i64 1
  %5 = load i64, ptr %arrayidx1.i, align 8
  %add.i = add i64 %mul.i, %5
  %LAST = getelementptr inbounds %struct.ContextLayout, ptr %context, i64 0, i32 6
  store i64 %add.i, ptr %LAST, align 8
  %COMMITTED = getelementptr inbounds %struct.ContextLayout, ptr %context, i64 0, i32 3
  store i64 0, ptr %COMMITTED, align 8
  %STOPPED.i = getelementptr inbounds %struct.ContextLayout, ptr %context, i64 0, i32 2
  store atomic i64 0, ptr %STOPPED.i seq_cst, align 8
  ret void
}

declare i64 @pthread_self()

define i32 @poll(ptr %context) {
entry:
  %time.i21 = alloca [2 x i64], align 16
  %time.i = alloca [2 x i64], align 16
  %STOPPED.i = getelementptr inbounds %struct.ContextLayout, ptr %context, i64 0, i32 2
  %0 = load atomic i64, ptr %STOPPED.i monotonic, align 8
  %cmp.i.not = icmp eq i64 %0, 0
  br i1 %cmp.i.not, label %if.end, label %return

if.end:
  %WATCHES.i = getelementptr inbounds %struct.ContextLayout, ptr %context, i64 0, i32 5
  %1 = load i64, ptr %WATCHES.i, align 8
  %tobool.not.i = icmp eq i64 %1, 0
  br i1 %tobool.not.i, label %return, label %asks.exit

asks.exit:
  %COMMITTED.i = getelementptr inbounds %struct.ContextLayout, ptr %context, i64 0, i32 3
  %2 = load i64, ptr %COMMITTED.i, align 8
  %tobool1.not.i = icmp eq i64 %2, 0
  br i1 %tobool1.not.i, label %lor.lhs.false, label %return

lor.lhs.false:
  %arraydecay.i = getelementptr inbounds [2 x i64], ptr %time.i, i64 0, i64 0
  %call.i = call i32 @clock_gettime(i32 $MONOTONIC, ptr %arraydecay.i)
  %3 = load i64, ptr %arraydecay.i, align 16
  %mul.i = mul i64 %3, 1000000000
  %arrayidx1.i = getelementptr inbounds [2 x i64], ptr %time.i, i64 0, i64 1
  %4 = load i64, ptr %arrayidx1.i, align 8
  %add.i = add i64 %mul.i, %4
  %LAST = getelementptr inbounds %struct.ContextLayout, ptr %context, i64 0, i32 6
  %5 = load i64, ptr %LAST, align 8
  %sub = sub i64 %add.i, %5
  %cmp = icmp slt i64 %sub, 20000000
  br i1 %cmp, label %return, label %if.end4

if.end4:
  %call5 = call i32 @PyGILState_Ensure()
  %call6 = call i32 @PyErr_CheckSignals()
  %tobool = icmp ne i32 %call6, 0
  br i1 %tobool, label %if.then7, label %if.end8

if.then7:
  %TYPE = getelementptr inbounds %struct.ContextLayout, ptr %context, i64 0, i32 7
  %VALUE = getelementptr inbounds %struct.ContextLayout, ptr %context, i64 0, i32 8
  %TRACE = getelementptr inbounds %struct.ContextLayout, ptr %context, i64 0, i32 9
  call void @PyErr_Fetch(ptr %TYPE, ptr %VALUE, ptr %TRACE)
  store atomic i64 1, ptr %STOPPED.i seq_cst, align 8
  br label %if.end8

if.end8:
  %arraydecay.i22 = getelementptr inbounds [2 x i64], ptr %time.i21, i64 0, i64 0
  %call.i23 = call i32 @clock_gettime(i32 $MONOTONIC, ptr %arraydecay.i22)
  %6 = load i64, ptr %arraydecay.i22, align 16
  %mul.i24 = mul i64 %6, 1000000000
  %arrayidx1.i25 = getelementptr inbounds [2 x i64], ptr %time.i21, i64 0, i64 1
  %7 = load i64, ptr %arrayidx1.i25, align 8
  %add.i26 = add i64 %mul.i24, %7
  store i64 %add.i26, ptr %LAST, align 8
  call void @PyGILState_Release(i32 %call5)
  %conv = zext i1 %tobool to i32
  br label %return

return:
  %retval.0 = phi i32 [ %conv, %if.end8 ], [ 1, %entry ], [ 0, %lor.lhs.false ], [ 0, %asks.exit ], [ 0, %if.end ]
  ret i32 %retval.0
}

declare i32 @PyGILState_Ensure()

declare i32 @PyErr_CheckSignals()

declare void @PyErr_Fetch(ptr, ptr, ptr)

declare void @PyGILState_Release(i32)

define void @raise_it(ptr %context) {
entry:
  %TYPE = getelementptr inbounds %struct.ContextLayout, ptr %context, i64 0, i32 7
  %0 = load i64, ptr %TYPE, align 8
  %VALUE = getelementptr inbounds %struct.ContextLayout, ptr %context, i64 0, i32 8
  %1 = load i64, ptr %VALUE, align 8
  %TRACE = getelementptr inbounds %struct.ContextLayout, ptr %context, i64 0, i32 9
  %2 = load i64, ptr %TRACE, align 8
  store i64 0, ptr %TRACE, align 8
  store i64 0, ptr %VALUE, align 8
  store i64 0, ptr %TYPE, align 8
  %3 = inttoptr i64 %0 to ptr
  %4 = inttoptr i64 %1 to ptr
  %5 = inttoptr i64 %2 to ptr
  tail call void @PyErr_Restore(ptr %3, ptr %4, ptr %5)
  ret void
}

declare void @PyErr_Restore(ptr, ptr, ptr)

define i32 @call_python(ptr %words, ptr %operands) {
entry:
  %type.i = alloca ptr, align 8
  %value.i = alloca ptr, align 8
  %trace.i = alloca ptr, align 8
  %call = tail call i32 @PyGILState_Ensure()
  %call1 = tail call ptr @PyLong_FromVoidPtr(ptr %operands)
  %FUNCTION = getelementptr inbounds %struct.CallWord, ptr %words, i64 0, i32 1
  %0 = load i64, ptr %FUNCTION, align 8
  %1 = inttoptr i64 %0 to ptr
  %call2 = tail call ptr @PyObject_CallOneArg(ptr %1, ptr %call1)
  tail call void @Py_DecRef(ptr %call1)
  %cmp.not = icmp eq ptr %call2, null
  br i1 %cmp.not, label %if.else, label %if.then

if.then:
  %call3 = tail call i64 @PyLong_AsLong(ptr %call2)
  tail call void @Py_DecRef(ptr %call2)
  br label %if.end

if.else:
  call void @PyErr_Fetch(ptr %type.i, ptr %value.i, ptr %trace.i)
  call void @PyErr_NormalizeException(ptr %type.i, ptr %value.i, ptr %trace.i)
  %2 = load ptr, ptr %trace.i, align 8
  %cmp.not.i = icmp eq ptr %2, null
  br i1 %cmp.not.i, label %if.end.i, label %if.then.i

if.then.i:
  %3 = load ptr, ptr %value.i, align 8
  %call.i = call i32 @PyException_SetTraceback(ptr %3, ptr %2)
  br label %if.end.i

if.end.i:
  %CONTEXT.i = getelementptr inbounds %struct.CallWord, ptr %words, i64 0, i32 4
  %4 = load i64, ptr %CONTEXT.i, align 8
  %5 = inttoptr i64 %4 to ptr
  %cmp1.not.i = icmp eq i64 %4, 0
  br i1 %cmp1.not.i, label %if.end5.i, label %land.lhs.true.i

land.lhs.true.i:
  %STOPPED.i.i = getelementptr inbounds %struct.ContextLayout, ptr %5, i64 0, i32 2
  %6 = load atomic i64, ptr %STOPPED.i.i monotonic, align 8
  %cmp.i.not.i = icmp eq i64 %6, 0
  br i1 %cmp.i.not.i, label %land.lhs.true3.i, label %if.end5.i

land.lhs.true3.i:
  %COMMITTED.i = getelementptr inbounds %struct.ContextLayout, ptr %5, i64 0, i32 3
  %7 = load i64, ptr %COMMITTED.i, align 8
  %tobool.not.i = icmp eq i64 %7, 0
  br i1 %tobool.not.i, label %if.then4.i, label %if.end5.i

if.then4.i:
  %8 = load ptr, ptr %type.i, align 8
  %9 = ptrtoint ptr %8 to i64
  %TYPE.i = getelementptr inbounds %struct.ContextLayout, ptr %5, i64 0, i32 7
  store i64 %9, ptr %TYPE.i, align 8
  %10 = load ptr, ptr %value.i, align 8
  %11 = ptrtoint ptr %10 to i64
  %VALUE.i = getelementptr inbounds %struct.ContextLayout, ptr %5, i64 0, i32 8
  store i64 %11, ptr %VALUE.i, align 8
  %12 = load ptr, ptr %trace.i, align 8
  %13 = ptrtoint ptr %12 to i64
  %TRACE.i = getelementptr inbounds %struct.ContextLayout, ptr %5, i64 0, i32 9
  store i64 %13, ptr %TRACE.i, align 8
  store atomic i64 1, ptr %STOPPED.i.i seq_cst, align 8
  br label %raised_in.exit

if.end5.i:
  %TELL.i = getelementptr inbounds %struct.CallWord, ptr %words, i64 0, i32 2
  %14 = load i64, ptr %TELL.i, align 8
  %15 = inttoptr i64 %14 to ptr
  %16 = load ptr, ptr %value.i, align 8
  %call6.i = call ptr @PyObject_CallOneArg(ptr %15, ptr %16)
  call void @PyErr_Clear()
  call void @Py_DecRef(ptr %call6.i)
  %17 = load ptr, ptr %type.i, align 8
  call void @Py_DecRef(ptr %17)
  %18 = load ptr, ptr %value.i, align 8
  call void @Py_DecRef(ptr %18)
  %19 = load ptr, ptr %trace.i, align 8
  call void @Py_DecRef(ptr %19)
  %FAILURE.i = getelementptr inbounds %struct.CallWord, ptr %words, i64 0, i32 3
  %20 = load i64, ptr %FAILURE.i, align 8
  br label %raised_in.exit

raised_in.exit:
  %retval.0.i = phi i64 [ %20, %if.end5.i ], [ 0, %if.then4.i ]
  br label %if.end

if.end:
  %status.0 = phi i64 [ %call3, %if.then ], [ %retval.0.i, %raised_in.exit ]
  call void @PyGILState_Release(i32 %call)
  %conv = trunc i64 %status.0 to i32
  ret i32 %conv
}

declare ptr @PyLong_FromVoidPtr(ptr)

declare ptr @PyObject_CallOneArg(ptr, ptr)

declare void @Py_DecRef(ptr)

declare i64 @PyLong_AsLong(ptr)

define void @run(ptr %context, ptr %part, ptr %table, i64 %chunks) {
entry:
  %polled = alloca %struct.Polled, align 8
  %context1 = getelementptr inbounds %struct.Polled, ptr %polled, i64 0, i32 0
  store ptr %context, ptr %context1, align 8
  %part2 = getelementptr inbounds %struct.Polled, ptr %polled, i64 0, i32 1
  store ptr %part, ptr %part2, align 8
  %table3 = getelementptr inbounds %struct.Polled, ptr %polled, i64 0, i32 2
  store ptr %table, ptr %table3, align 8
  %WATCHES.i = getelementptr inbounds %struct.ContextLayout, ptr %context, i64 0, i32 5
  %0 = load i64, ptr %WATCHES.i, align 8
  %tobool.not.i = icmp eq i64 %0, 0
  br i1 %tobool.not.i, label %.thread, label %asks.exit

asks.exit:
  %COMMITTED.i = getelementptr inbounds %struct.ContextLayout, ptr %context, i64 0, i32 3
  %1 = load i64, ptr %COMMITTED.i, align 8
  %tobool1.not.i = icmp eq i64 %1, 0
  br i1 %tobool1.not.i, label %2, label %.thread

.thread:
  br label %2

2:
  %3 = phi ptr [ %table, %.thread ], [ %polled, %asks.exit ]
  %4 = phi ptr [ %part, %.thread ], [ @polled_part, %asks.exit ]
  %POOL = getelementptr inbounds %struct.ContextLayout, ptr %context, i64 0, i32 4
  %5 = load i64, ptr %POOL, align 8
  %6 = inttoptr i64 %5 to ptr
  %cmp.not = icmp eq i64 %5, 0
  br i1 %cmp.not, label %for.cond.preheader, label %if.then4

for.cond.preheader:
  %cmp620 = icmp sgt i64 %chunks, 0
  br i1 %cmp620, label %for.body, label %cleanup

if.then4:
  %7 = load ptr, ptr %6, align 8
  call void %7(ptr %6, ptr %4, ptr %3, i64 %chunks)
  br label %cleanup

for.body:
  %i.021 = phi i64 [ %inc, %for.body ], [ 0, %for.cond.preheader ]
  call void %4(ptr %3, i64 %i.021, i64 0)
  %inc = add nuw nsw i64 %i.021, 1
  %exitcond.not = icmp eq i64 %inc, %chunks
  br i1 %exitcond.not, label %cleanup, label %for.body

cleanup:
  ret void
}

define internal void @polled_part(ptr %table, i64 %chunk, i64 %worker) {
entry:
  %cmp = icmp eq i64 %worker, 0
  %context = getelementptr inbounds %struct.Polled, ptr %table, i64 0, i32 0
  %0 = load ptr, ptr %context, align 8
  br i1 %cmp, label %cond.true, label %cond.end

cond.true:
  %call = tail call i32 @poll(ptr %0)
  %cmp1.not = icmp eq i32 %call, 0
  br i1 %cmp1.not, label %if.then, label %if.end

cond.end:
  %STOPPED.i = getelementptr inbounds %struct.ContextLayout, ptr %0, i64 0, i32 2
  %1 = load atomic i64, ptr %STOPPED.i monotonic, align 8
  %cmp.i.not = icmp eq i64 %1, 0
  br i1 %cmp.i.not, label %if.then, label %if.end

if.then:
  %part = getelementptr inbounds %struct.Polled, ptr %table, i64 0, i32 1
  %2 = load ptr, ptr %part, align 8
  %table6 = getelementptr inbounds %struct.Polled, ptr %table, i64 0, i32 2
  %3 = load ptr, ptr %table6, align 8
  tail call void %2(ptr %3, i64 %chunk, i64 %worker)
  br label %if.end

if.end:
  ret void
}

declare i32 @clock_gettime(i32, ptr)

declare void @PyErr_NormalizeException(ptr, ptr, ptr)

declare i32 @PyException_SetTraceback(ptr, ptr)

declare void @PyErr_Clear()
