; Made of mpi.c by make parts HANDLE=int64_t, from b1d5bb5b0a7cfbbe. Do not edit.

%struct.Operands = type { i64, ptr, ptr, ptr }
%struct.CollectiveWord = type { i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, [2 x i64], i64, i64 }
%struct.MeetingWord = type { i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64 }

define i32 @copy(ptr %op, ptr %operands) {
entry:
  %out = getelementptr inbounds %struct.Operands, ptr %operands, i64 0, i32 2
  %0 = load ptr, ptr %out, align 8
  %in = getelementptr inbounds %struct.Operands, ptr %operands, i64 0, i32 1
  %1 = load ptr, ptr %in, align 8
  %count.i = getelementptr inbounds %struct.Operands, ptr %operands, i64 0, i32 0
  %2 = load i64, ptr %count.i, align 8
  %ITEMSIZE.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 6
  %3 = load i64, ptr %ITEMSIZE.i, align 8
  %mul.i = mul i64 %3, %2
  tail call void @llvm.memcpy.p0.p0.i64(ptr %0, ptr %1, i64 %mul.i, i1 false)
  ret i32 0
}

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define i32 @nothing(ptr %op, ptr %operands) {
entry:
  ret i32 0
}

define i32 @all_reduce(ptr %op, ptr %operands) {
entry:
  %count.i = getelementptr inbounds %struct.Operands, ptr %operands, i64 0, i32 0
  %0 = load i64, ptr %count.i, align 8
  %ITEMSIZE.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 6
  %1 = load i64, ptr %ITEMSIZE.i, align 8
  %mul.i = mul i64 %1, %0
  %call1 = tail call fastcc i32 @reduced(ptr %op, ptr %operands, i64 %mul.i, i64 0, i64 %mul.i)
  ret i32 %call1
}

define internal fastcc i32 @reduced(ptr %op, ptr %operands, i64 %whole, i64 %offset, i64 %part) {
entry:
  %request = alloca i64, align 8
  %count = getelementptr inbounds %struct.Operands, ptr %operands, i64 0, i32 0
  %0 = load i64, ptr %count, align 8
  %conv = trunc i64 %0 to i32
  %cmp.i = icmp ugt i64 %0, 2147483647
  br i1 %cmp.i, label %start.exit.thread, label %start.exit

start.exit.thread:
  %STATUS.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 7
  store i64 -1, ptr %STATUS.i, align 8
  br label %cleanup

start.exit:
  %in.i = getelementptr inbounds %struct.Operands, ptr %operands, i64 0, i32 1
  %1 = load ptr, ptr %in.i, align 8
  %call.i = tail call fastcc i32 @meet(ptr %op, i64 %0, ptr %1, i64 %whole)
  switch i32 %call.i, label %if.end6 [
    i32 2, label %if.then
    i32 1, label %cleanup
  ]

if.then:
  %out = getelementptr inbounds %struct.Operands, ptr %operands, i64 0, i32 2
  %2 = load ptr, ptr %out, align 8
  %call2 = tail call fastcc i32 @combine(ptr %op, ptr %2, i64 %whole, i64 %offset, i64 %part, i32 %conv)
  br label %cleanup

if.end6:
  %FUNCTION = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 1
  %3 = load i64, ptr %FUNCTION, align 8
  %4 = inttoptr i64 %3 to ptr
  %5 = load ptr, ptr %in.i, align 8
  %out7 = getelementptr inbounds %struct.Operands, ptr %operands, i64 0, i32 2
  %6 = load ptr, ptr %out7, align 8
  %TYPE.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 2
  %7 = load i64, ptr %TYPE.i, align 8
  %REDUCTION.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 3
  %8 = load i64, ptr %REDUCTION.i, align 8
  %MEETING.i.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 8
  %9 = load i64, ptr %MEETING.i.i, align 8
  %10 = inttoptr i64 %9 to ptr
  %COMM.i = getelementptr inbounds %struct.MeetingWord, ptr %10, i64 0, i32 2
  %11 = load i64, ptr %COMM.i, align 8
  %call11 = call i32 %4(ptr %5, ptr %6, i32 %conv, i64 %7, i64 %8, i64 %11, ptr %request)
  %tobool.not.i = icmp eq i32 %call11, 0
  br i1 %tobool.not.i, label %cond.false.i, label %cond.true.i

cond.true.i:
  %conv.i = sext i32 %call11 to i64
  %STATUS.i.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 7
  store i64 %conv.i, ptr %STATUS.i.i, align 8
  %12 = load i64, ptr %MEETING.i.i, align 8
  %13 = inttoptr i64 %12 to ptr
  %FAILED.i.i = getelementptr inbounds %struct.MeetingWord, ptr %13, i64 0, i32 9
  %14 = load i64, ptr %FAILED.i.i, align 8
  %15 = inttoptr i64 %14 to ptr
  store i64 1, ptr %15, align 8
  br label %cleanup

cond.false.i:
  %call1.i = call fastcc i32 @wait(ptr %op, i32 1, ptr %request)
  br label %cleanup

cleanup:
  %retval.0 = phi i32 [ %call2, %if.then ], [ 1, %start.exit ], [ 1, %start.exit.thread ], [ 1, %cond.true.i ], [ %call1.i, %cond.false.i ]
  ret i32 %retval.0
}

define i32 @reduce_scatter(ptr %op, ptr %operands) {
entry:
  %count.i = getelementptr inbounds %struct.Operands, ptr %operands, i64 0, i32 0
  %0 = load i64, ptr %count.i, align 8
  %ITEMSIZE.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 6
  %1 = load i64, ptr %ITEMSIZE.i, align 8
  %mul.i = mul i64 %1, %0
  %MEETING.i.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 8
  %2 = load i64, ptr %MEETING.i.i, align 8
  %3 = inttoptr i64 %2 to ptr
  %SIZE.i = getelementptr inbounds %struct.MeetingWord, ptr %3, i64 0, i32 1
  %4 = load i64, ptr %SIZE.i, align 8
  %mul = mul i64 %4, %mul.i
  %RANK.i = getelementptr inbounds %struct.MeetingWord, ptr %3, i64 0, i32 0
  %5 = load i64, ptr %RANK.i, align 8
  %mul3 = mul i64 %5, %mul.i
  %call4 = tail call fastcc i32 @reduced(ptr %op, ptr %operands, i64 %mul, i64 %mul3, i64 %mul.i)
  ret i32 %call4
}

define i32 @all_gather(ptr %op, ptr %operands) {
entry:
  %request = alloca i64, align 8
  %count.i = getelementptr inbounds %struct.Operands, ptr %operands, i64 0, i32 0
  %0 = load i64, ptr %count.i, align 8
  %ITEMSIZE.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 6
  %1 = load i64, ptr %ITEMSIZE.i, align 8
  %mul.i = mul i64 %1, %0
  %conv = trunc i64 %0 to i32
  %cmp.i = icmp ugt i64 %0, 2147483647
  br i1 %cmp.i, label %start.exit.thread, label %start.exit

start.exit.thread:
  %STATUS.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 7
  store i64 -1, ptr %STATUS.i, align 8
  br label %if.then10

start.exit:
  %in.i = getelementptr inbounds %struct.Operands, ptr %operands, i64 0, i32 1
  %2 = load ptr, ptr %in.i, align 8
  %call.i = tail call fastcc i32 @meet(ptr %op, i64 %0, ptr %2, i64 %mul.i)
  %TYPE.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 2
  %3 = load i64, ptr %TYPE.i, align 8
  switch i32 %call.i, label %if.then10 [
    i32 2, label %for.cond.preheader
    i32 0, label %if.end13
  ]

for.cond.preheader:
  %MEETING.i.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 8
  %4 = load i64, ptr %MEETING.i.i, align 8
  %5 = inttoptr i64 %4 to ptr
  %SIZE.i51 = getelementptr inbounds %struct.MeetingWord, ptr %5, i64 0, i32 1
  %6 = load i64, ptr %SIZE.i51, align 8
  %cmp552.not = icmp eq i64 %6, 0
  br i1 %cmp552.not, label %if.then10, label %for.body.lr.ph

for.body.lr.ph:
  %out = getelementptr inbounds %struct.Operands, ptr %operands, i64 0, i32 2
  %add.i.i = add i64 %mul.i, 31
  %and.i.i = and i64 %add.i.i, -8
  br label %for.body

for.body:
  %7 = phi i64 [ %6, %for.body.lr.ph ], [ %15, %for.body ]
  %8 = phi ptr [ %5, %for.body.lr.ph ], [ %14, %for.body ]
  %i.053 = phi i64 [ 0, %for.body.lr.ph ], [ %inc, %for.body ]
  %9 = load ptr, ptr %out, align 8
  %mul = mul i64 %i.053, %mul.i
  %add.ptr = getelementptr i8, ptr %9, i64 %mul
  %10 = load i64, ptr %8, align 8
  %add.i = sub i64 %7, %i.053
  %sub.i = add i64 %add.i, %10
  %rem.i = urem i64 %sub.i, %7
  %BLOCKS.i.i = getelementptr inbounds %struct.MeetingWord, ptr %8, i64 0, i32 10
  %11 = load i64, ptr %BLOCKS.i.i, align 8
  %12 = inttoptr i64 %11 to ptr
  %mul.i45 = mul i64 %rem.i, %and.i.i
  %add.ptr.i = getelementptr i8, ptr %12, i64 24
  %add.ptr4.i = getelementptr i8, ptr %add.ptr.i, i64 %mul.i45
  tail call void @llvm.memcpy.p0.p0.i64(ptr %add.ptr, ptr %add.ptr4.i, i64 %mul.i, i1 false)
  %inc = add nuw i64 %i.053, 1
  %13 = load i64, ptr %MEETING.i.i, align 8
  %14 = inttoptr i64 %13 to ptr
  %SIZE.i = getelementptr inbounds %struct.MeetingWord, ptr %14, i64 0, i32 1
  %15 = load i64, ptr %SIZE.i, align 8
  %cmp5 = icmp ugt i64 %15, %inc
  br i1 %cmp5, label %for.body, label %if.then10

if.then10:
  %retval.0.i50 = phi i32 [ 1, %start.exit.thread ], [ %call.i, %start.exit ], [ 2, %for.cond.preheader ], [ 2, %for.body ]
  %cmp11 = icmp eq i32 %retval.0.i50, 1
  %conv12 = zext i1 %cmp11 to i32
  br label %cleanup

if.end13:
  %MEETING.i.i46.phi.trans.insert = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 8
  %.pre = load i64, ptr %MEETING.i.i46.phi.trans.insert, align 8
  %.phi.trans.insert = inttoptr i64 %.pre to ptr
  %COMM.i.phi.trans.insert = getelementptr inbounds %struct.MeetingWord, ptr %.phi.trans.insert, i64 0, i32 2
  %.pre54 = load i64, ptr %COMM.i.phi.trans.insert, align 8
  %FUNCTION = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 1
  %16 = load i64, ptr %FUNCTION, align 8
  %17 = inttoptr i64 %16 to ptr
  %18 = load ptr, ptr %in.i, align 8
  %out14 = getelementptr inbounds %struct.Operands, ptr %operands, i64 0, i32 2
  %19 = load ptr, ptr %out14, align 8
  %call16 = call i32 %17(ptr %18, i32 %conv, i64 %3, ptr %19, i32 %conv, i64 %3, i64 %.pre54, ptr %request)
  %tobool.not.i = icmp eq i32 %call16, 0
  br i1 %tobool.not.i, label %cond.false.i, label %cond.true.i

cond.true.i:
  %MEETING.i.i46 = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 8
  %conv.i = sext i32 %call16 to i64
  %STATUS.i.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 7
  store i64 %conv.i, ptr %STATUS.i.i, align 8
  %20 = load i64, ptr %MEETING.i.i46, align 8
  %21 = inttoptr i64 %20 to ptr
  %FAILED.i.i = getelementptr inbounds %struct.MeetingWord, ptr %21, i64 0, i32 9
  %22 = load i64, ptr %FAILED.i.i, align 8
  %23 = inttoptr i64 %22 to ptr
  store i64 1, ptr %23, align 8
  br label %cleanup

cond.false.i:
  %call1.i = call fastcc i32 @wait(ptr %op, i32 1, ptr %request)
  br label %cleanup

cleanup:
  %retval.0 = phi i32 [ %conv12, %if.then10 ], [ 1, %cond.true.i ], [ %call1.i, %cond.false.i ]
  ret i32 %retval.0
}

define i32 @broadcast(ptr %op, ptr %operands) {
entry:
  %request = alloca i64, align 8
  %count.i = getelementptr inbounds %struct.Operands, ptr %operands, i64 0, i32 0
  %0 = load i64, ptr %count.i, align 8
  %ITEMSIZE.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 6
  %1 = load i64, ptr %ITEMSIZE.i, align 8
  %mul.i = mul i64 %1, %0
  %ROOT = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 4
  %2 = load i64, ptr %ROOT, align 8
  %conv = trunc i64 %2 to i32
  %cmp.i = icmp ugt i64 %0, 2147483647
  br i1 %cmp.i, label %start.exit.thread, label %start.exit

start.exit.thread:
  %STATUS.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 7
  store i64 -1, ptr %STATUS.i, align 8
  br label %cleanup

start.exit:
  %in.i = getelementptr inbounds %struct.Operands, ptr %operands, i64 0, i32 1
  %3 = load ptr, ptr %in.i, align 8
  %call.i = tail call fastcc i32 @meet(ptr %op, i64 %0, ptr %3, i64 %mul.i)
  switch i32 %call.i, label %if.else [
    i32 1, label %cleanup
    i32 2, label %if.end11
  ]

if.else:
  %IS_ROOT = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 5
  %4 = load i64, ptr %IS_ROOT, align 8
  %tobool.not = icmp eq i64 %4, 0
  br i1 %tobool.not, label %if.end15, label %if.then8

if.then8:
  %out9 = getelementptr inbounds %struct.Operands, ptr %operands, i64 0, i32 2
  %5 = load ptr, ptr %out9, align 8
  %6 = load ptr, ptr %in.i, align 8
  tail call void @llvm.memcpy.p0.p0.i64(ptr %5, ptr %6, i64 %mul.i, i1 false)
  br label %if.end15

if.end11:
  %out = getelementptr inbounds %struct.Operands, ptr %operands, i64 0, i32 2
  %7 = load ptr, ptr %out, align 8
  %conv6 = and i64 %2, 4294967295
  %MEETING.i.i.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 8
  %8 = load i64, ptr %MEETING.i.i.i, align 8
  %9 = inttoptr i64 %8 to ptr
  %SIZE.i.i = getelementptr inbounds %struct.MeetingWord, ptr %9, i64 0, i32 1
  %10 = load i64, ptr %SIZE.i.i, align 8
  %RANK.i.i = getelementptr inbounds %struct.MeetingWord, ptr %9, i64 0, i32 0
  %11 = load i64, ptr %RANK.i.i, align 8
  %add.i = sub i64 %10, %conv6
  %sub.i = add i64 %add.i, %11
  %rem.i = urem i64 %sub.i, %10
  %BLOCKS.i.i = getelementptr inbounds %struct.MeetingWord, ptr %9, i64 0, i32 10
  %12 = load i64, ptr %BLOCKS.i.i, align 8
  %13 = inttoptr i64 %12 to ptr
  %add.i.i = add i64 %mul.i, 31
  %and.i.i = and i64 %add.i.i, -8
  %mul.i47 = mul i64 %rem.i, %and.i.i
  %add.ptr.i = getelementptr i8, ptr %13, i64 %mul.i47
  %add.ptr4.i = getelementptr i8, ptr %add.ptr.i, i64 24
  tail call void @llvm.memcpy.p0.p0.i64(ptr %7, ptr %add.ptr4.i, i64 %mul.i, i1 false)
  br label %cleanup

if.end15:
  %FUNCTION = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 1
  %14 = load i64, ptr %FUNCTION, align 8
  %15 = inttoptr i64 %14 to ptr
  %out16 = getelementptr inbounds %struct.Operands, ptr %operands, i64 0, i32 2
  %16 = load ptr, ptr %out16, align 8
  %17 = load i64, ptr %count.i, align 8
  %conv17 = trunc i64 %17 to i32
  %TYPE.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 2
  %18 = load i64, ptr %TYPE.i, align 8
  %MEETING.i.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 8
  %19 = load i64, ptr %MEETING.i.i, align 8
  %20 = inttoptr i64 %19 to ptr
  %COMM.i = getelementptr inbounds %struct.MeetingWord, ptr %20, i64 0, i32 2
  %21 = load i64, ptr %COMM.i, align 8
  %call20 = call i32 %15(ptr %16, i32 %conv17, i64 %18, i32 %conv, i64 %21, ptr %request)
  %tobool.not.i = icmp eq i32 %call20, 0
  br i1 %tobool.not.i, label %cond.false.i, label %cond.true.i

cond.true.i:
  %conv.i = sext i32 %call20 to i64
  %STATUS.i.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 7
  store i64 %conv.i, ptr %STATUS.i.i, align 8
  %22 = load i64, ptr %MEETING.i.i, align 8
  %23 = inttoptr i64 %22 to ptr
  %FAILED.i.i = getelementptr inbounds %struct.MeetingWord, ptr %23, i64 0, i32 9
  %24 = load i64, ptr %FAILED.i.i, align 8
  %25 = inttoptr i64 %24 to ptr
  store i64 1, ptr %25, align 8
  br label %cleanup

cond.false.i:
  %call1.i = call fastcc i32 @wait(ptr %op, i32 1, ptr %request)
  br label %cleanup

cleanup:
  %retval.0 = phi i32 [ 1, %start.exit ], [ 0, %if.end11 ], [ 1, %start.exit.thread ], [ 1, %cond.true.i ], [ %call1.i, %cond.false.i ]
  ret i32 %retval.0
}

define i32 @reduce(ptr %op, ptr %operands) {
entry:
  %request = alloca i64, align 8
  %count.i = getelementptr inbounds %struct.Operands, ptr %operands, i64 0, i32 0
  %0 = load i64, ptr %count.i, align 8
  %ITEMSIZE.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 6
  %1 = load i64, ptr %ITEMSIZE.i, align 8
  %mul.i = mul i64 %1, %0
  %conv = trunc i64 %0 to i32
  %cmp.i = icmp ugt i64 %0, 2147483647
  br i1 %cmp.i, label %start.exit.thread, label %start.exit

start.exit.thread:
  %STATUS.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 7
  store i64 -1, ptr %STATUS.i, align 8
  br label %cleanup

start.exit:
  %in.i = getelementptr inbounds %struct.Operands, ptr %operands, i64 0, i32 1
  %2 = load ptr, ptr %in.i, align 8
  %call.i = tail call fastcc i32 @meet(ptr %op, i64 %0, ptr %2, i64 %mul.i)
  %cmp = icmp eq i32 %call.i, 1
  br i1 %cmp, label %cleanup, label %if.end

if.end:
  %IS_ROOT = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 5
  %3 = load i64, ptr %IS_ROOT, align 8
  %tobool.not = icmp eq i64 %3, 0
  br i1 %tobool.not, label %if.then3, label %if.end4

if.then3:
  %out = getelementptr inbounds %struct.Operands, ptr %operands, i64 0, i32 2
  %4 = load ptr, ptr %out, align 8
  tail call void @llvm.memset.p0.i64(ptr %4, i8 0, i64 %mul.i, i1 false)
  br label %if.end4

if.end4:
  %cmp5 = icmp eq i32 %call.i, 2
  br i1 %cmp5, label %if.then7, label %if.end12

if.then7:
  %5 = load i64, ptr %IS_ROOT, align 8
  %tobool9.not = icmp eq i64 %5, 0
  br i1 %tobool9.not, label %cleanup, label %cond.true

cond.true:
  %out10 = getelementptr inbounds %struct.Operands, ptr %operands, i64 0, i32 2
  %6 = load ptr, ptr %out10, align 8
  %call11 = tail call fastcc i32 @combine(ptr %op, ptr %6, i64 %mul.i, i64 0, i64 %mul.i, i32 %conv)
  br label %cleanup

if.end12:
  %FUNCTION = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 1
  %7 = load i64, ptr %FUNCTION, align 8
  %8 = inttoptr i64 %7 to ptr
  %9 = load ptr, ptr %in.i, align 8
  %out13 = getelementptr inbounds %struct.Operands, ptr %operands, i64 0, i32 2
  %10 = load ptr, ptr %out13, align 8
  %TYPE.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 2
  %11 = load i64, ptr %TYPE.i, align 8
  %REDUCTION.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 3
  %12 = load i64, ptr %REDUCTION.i, align 8
  %ROOT = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 4
  %13 = load i64, ptr %ROOT, align 8
  %conv16 = trunc i64 %13 to i32
  %MEETING.i.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 8
  %14 = load i64, ptr %MEETING.i.i, align 8
  %15 = inttoptr i64 %14 to ptr
  %COMM.i = getelementptr inbounds %struct.MeetingWord, ptr %15, i64 0, i32 2
  %16 = load i64, ptr %COMM.i, align 8
  %call18 = call i32 %8(ptr %9, ptr %10, i32 %conv, i64 %11, i64 %12, i32 %conv16, i64 %16, ptr %request)
  %tobool.not.i = icmp eq i32 %call18, 0
  br i1 %tobool.not.i, label %cond.false.i, label %cond.true.i

cond.true.i:
  %conv.i = sext i32 %call18 to i64
  %STATUS.i.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 7
  store i64 %conv.i, ptr %STATUS.i.i, align 8
  %17 = load i64, ptr %MEETING.i.i, align 8
  %18 = inttoptr i64 %17 to ptr
  %FAILED.i.i = getelementptr inbounds %struct.MeetingWord, ptr %18, i64 0, i32 9
  %19 = load i64, ptr %FAILED.i.i, align 8
  %20 = inttoptr i64 %19 to ptr
  store i64 1, ptr %20, align 8
  br label %cleanup

cond.false.i:
  %call1.i = call fastcc i32 @wait(ptr %op, i32 1, ptr %request)
  br label %cleanup

cleanup:
  %retval.0 = phi i32 [ 1, %start.exit ], [ %call11, %cond.true ], [ 0, %if.then7 ], [ 1, %start.exit.thread ], [ 1, %cond.true.i ], [ %call1.i, %cond.false.i ]
  ret i32 %retval.0
}

declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define internal fastcc i32 @combine(ptr %op, ptr %out, i64 %nbytes, i64 %offset, i64 %part, i32 %n) {
entry:
  %MEETING.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 8
  %0 = load i64, ptr %MEETING.i, align 8
  %1 = inttoptr i64 %0 to ptr
  %REDUCE_LOCAL = getelementptr inbounds %struct.MeetingWord, ptr %1, i64 0, i32 7
  %2 = load i64, ptr %REDUCE_LOCAL, align 8
  %3 = inttoptr i64 %2 to ptr
  %SIZE.i.i = getelementptr inbounds %struct.MeetingWord, ptr %1, i64 0, i32 1
  %4 = load i64, ptr %SIZE.i.i, align 8
  %RANK.i.i = getelementptr inbounds %struct.MeetingWord, ptr %1, i64 0, i32 0
  %5 = load i64, ptr %RANK.i.i, align 8
  %sub.i = add i64 %5, %4
  %rem.i = urem i64 %sub.i, %4
  %BLOCKS.i.i = getelementptr inbounds %struct.MeetingWord, ptr %1, i64 0, i32 10
  %6 = load i64, ptr %BLOCKS.i.i, align 8
  %7 = inttoptr i64 %6 to ptr
  %add.i.i = add i64 %nbytes, 31
  %and.i.i = and i64 %add.i.i, -8
  %mul.i = mul i64 %rem.i, %and.i.i
  %add.ptr.i = getelementptr i8, ptr %7, i64 %mul.i
  %add.ptr4.i = getelementptr i8, ptr %add.ptr.i, i64 24
  %add.ptr = getelementptr i8, ptr %add.ptr4.i, i64 %offset
  tail call void @llvm.memcpy.p0.p0.i64(ptr %out, ptr %add.ptr, i64 %part, i1 false)
  %8 = load i64, ptr %MEETING.i, align 8
  %9 = inttoptr i64 %8 to ptr
  %SIZE.i40 = getelementptr inbounds %struct.MeetingWord, ptr %9, i64 0, i32 1
  %10 = load i64, ptr %SIZE.i40, align 8
  %cmp41 = icmp ugt i64 %10, 1
  br i1 %cmp41, label %for.body.lr.ph, label %cleanup9

for.body.lr.ph:
  %TYPE.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 2
  %REDUCTION.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 3
  br label %for.body

for.cond:
  %11 = load i64, ptr %MEETING.i, align 8
  %12 = inttoptr i64 %11 to ptr
  %SIZE.i = getelementptr inbounds %struct.MeetingWord, ptr %12, i64 0, i32 1
  %13 = load i64, ptr %SIZE.i, align 8
  %cmp = icmp ugt i64 %13, %inc
  br i1 %cmp, label %for.body, label %cleanup9

for.body:
  %14 = phi i64 [ %10, %for.body.lr.ph ], [ %13, %for.cond ]
  %15 = phi ptr [ %9, %for.body.lr.ph ], [ %12, %for.cond ]
  %i.042 = phi i64 [ 1, %for.body.lr.ph ], [ %inc, %for.cond ]
  %16 = load i64, ptr %15, align 8
  %add.i = sub i64 %14, %i.042
  %sub.i29 = add i64 %add.i, %16
  %rem.i30 = urem i64 %sub.i29, %14
  %BLOCKS.i.i31 = getelementptr inbounds %struct.MeetingWord, ptr %15, i64 0, i32 10
  %17 = load i64, ptr %BLOCKS.i.i31, align 8
  %18 = inttoptr i64 %17 to ptr
  %mul.i34 = mul i64 %rem.i30, %and.i.i
  %add.ptr.i35 = getelementptr i8, ptr %18, i64 24
  %add.ptr4.i36 = getelementptr i8, ptr %add.ptr.i35, i64 %offset
  %add.ptr4 = getelementptr i8, ptr %add.ptr4.i36, i64 %mul.i34
  %19 = load i64, ptr %TYPE.i, align 8
  %20 = load i64, ptr %REDUCTION.i, align 8
  %call7 = tail call i32 %3(ptr %add.ptr4, ptr %out, i32 %n, i64 %19, i64 %20)
  %tobool.not = icmp eq i32 %call7, 0
  %inc = add nuw i64 %i.042, 1
  br i1 %tobool.not, label %for.cond, label %if.then

if.then:
  %conv = sext i32 %call7 to i64
  %STATUS.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 7
  store i64 %conv, ptr %STATUS.i, align 8
  %21 = load i64, ptr %MEETING.i, align 8
  %22 = inttoptr i64 %21 to ptr
  %FAILED.i = getelementptr inbounds %struct.MeetingWord, ptr %22, i64 0, i32 9
  %23 = load i64, ptr %FAILED.i, align 8
  %24 = inttoptr i64 %23 to ptr
  store i64 1, ptr %24, align 8
  br label %cleanup9

cleanup9:
  %cmp39 = phi i32 [ 1, %if.then ], [ 0, %entry ], [ 0, %for.cond ]
  ret i32 %cmp39
}

define i32 @reduce_start(ptr %op, ptr %operands) {
entry:
  %count.i = getelementptr inbounds %struct.Operands, ptr %operands, i64 0, i32 0
  %0 = load i64, ptr %count.i, align 8
  %cmp.i = icmp ugt i64 %0, 2147483647
  br i1 %cmp.i, label %start.exit.thread, label %start.exit

start.exit.thread:
  %STATUS.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 7
  store i64 -1, ptr %STATUS.i, align 8
  br label %return

start.exit:
  %in.i = getelementptr inbounds %struct.Operands, ptr %operands, i64 0, i32 1
  %1 = load ptr, ptr %in.i, align 8
  %call.i = tail call fastcc i32 @meet(ptr %op, i64 %0, ptr %1, i64 2048)
  %tobool.not = icmp eq i32 %call.i, 0
  br i1 %tobool.not, label %if.end, label %return

if.end:
  %FUNCTION = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 1
  %2 = load i64, ptr %FUNCTION, align 8
  %3 = inttoptr i64 %2 to ptr
  %4 = load ptr, ptr %in.i, align 8
  %out = getelementptr inbounds %struct.Operands, ptr %operands, i64 0, i32 2
  %5 = load ptr, ptr %out, align 8
  %6 = load i64, ptr %count.i, align 8
  %conv = trunc i64 %6 to i32
  %TYPE.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 2
  %7 = load i64, ptr %TYPE.i, align 8
  %REDUCTION.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 3
  %8 = load i64, ptr %REDUCTION.i, align 8
  %MEETING.i.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 8
  %9 = load i64, ptr %MEETING.i.i, align 8
  %10 = inttoptr i64 %9 to ptr
  %COMM.i = getelementptr inbounds %struct.MeetingWord, ptr %10, i64 0, i32 2
  %11 = load i64, ptr %COMM.i, align 8
  %request = getelementptr inbounds %struct.Operands, ptr %operands, i64 0, i32 3
  %12 = load ptr, ptr %request, align 8
  %call4 = tail call i32 %3(ptr %4, ptr %5, i32 %conv, i64 %7, i64 %8, i64 %11, ptr %12)
  %tobool5.not = icmp eq i32 %call4, 0
  br i1 %tobool5.not, label %return, label %cond.true

cond.true:
  %conv6 = sext i32 %call4 to i64
  %STATUS.i18 = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 7
  store i64 %conv6, ptr %STATUS.i18, align 8
  %13 = load i64, ptr %MEETING.i.i, align 8
  %14 = inttoptr i64 %13 to ptr
  %FAILED.i = getelementptr inbounds %struct.MeetingWord, ptr %14, i64 0, i32 9
  %15 = load i64, ptr %FAILED.i, align 8
  %16 = inttoptr i64 %15 to ptr
  store i64 1, ptr %16, align 8
  br label %return

return:
  %retval.0 = phi i32 [ 1, %start.exit ], [ 1, %cond.true ], [ 0, %if.end ], [ 1, %start.exit.thread ]
  ret i32 %retval.0
}

define i32 @reduce_wait(ptr %op, ptr %operands) {
entry:
  %out = getelementptr inbounds %struct.Operands, ptr %operands, i64 0, i32 2
  %0 = load ptr, ptr %out, align 8
  %call = tail call fastcc i32 @wait(ptr %op, i32 1, ptr %0)
  ret i32 %call
}

define internal fastcc i32 @wait(ptr %op, i32 %n, ptr %requests) {
entry:
  %time.i = alloca [2 x i64], align 16
  %is_done = alloca i32, align 4
  %statuses = alloca [512 x i8], align 16
  %MEETING.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 8
  %0 = load i64, ptr %MEETING.i, align 8
  %1 = inttoptr i64 %0 to ptr
  %TEST_ALL = getelementptr inbounds %struct.MeetingWord, ptr %1, i64 0, i32 6
  %2 = load i64, ptr %TEST_ALL, align 8
  %3 = inttoptr i64 %2 to ptr
  %PATIENCE = getelementptr inbounds %struct.MeetingWord, ptr %1, i64 0, i32 8
  %4 = load i64, ptr %PATIENCE, align 8
  %arraydecay = getelementptr inbounds [512 x i8], ptr %statuses, i64 0, i64 0
  %call243 = call i32 %3(i32 %n, ptr %requests, ptr %is_done, ptr %arraydecay)
  %tobool.not44 = icmp eq i32 %call243, 0
  br i1 %tobool.not44, label %if.end.lr.ph, label %if.then

if.end.lr.ph:
  %arraydecay.i = getelementptr inbounds [2 x i64], ptr %time.i, i64 0, i64 0
  %arrayidx1.i = getelementptr inbounds [2 x i64], ptr %time.i, i64 0, i64 1
  br label %if.end

if.then:
  %call2.lcssa = phi i32 [ %call243, %entry ], [ %call2, %for.inc ]
  %conv = sext i32 %call2.lcssa to i64
  br label %cleanup22.sink.split

if.end:
  %begun.046 = phi i64 [ 0, %if.end.lr.ph ], [ %begun.2, %for.inc ]
  %i.045 = phi i64 [ 1, %if.end.lr.ph ], [ %inc, %for.inc ]
  %5 = load i32, ptr %is_done, align 4
  %tobool4.not = icmp eq i32 %5, 0
  br i1 %tobool4.not, label %if.end6, label %cleanup22

if.end6:
  %and = and i64 %i.045, 255
  %tobool7.not = icmp eq i64 %and, 0
  br i1 %tobool7.not, label %if.end9, label %for.inc

if.end9:
  %call10 = call i32 @sched_yield()
  %call.i = call i32 @clock_gettime(i32 $MONOTONIC, ptr %arraydecay.i)
  %6 = load i64, ptr %arraydecay.i, align 16
  %mul.i = mul i64 %6, 1000000000
  %7 = load i64, ptr %arrayidx1.i, align 8
  %add.i = add i64 %mul.i, %7
  %tobool12.not = icmp eq i64 %begun.046, 0
  %spec.select = select i1 %tobool12.not, i64 %add.i, i64 %begun.046
  %sub = sub i64 %add.i, %spec.select
  %cmp = icmp sgt i64 %sub, %4
  br i1 %cmp, label %cleanup22.sink.split, label %for.inc

for.inc:
  %begun.2 = phi i64 [ %begun.046, %if.end6 ], [ %spec.select, %if.end9 ]
  %inc = add i64 %i.045, 1
  %call2 = call i32 %3(i32 %n, ptr %requests, ptr %is_done, ptr %arraydecay)
  %tobool.not = icmp eq i32 %call2, 0
  br i1 %tobool.not, label %if.end, label %if.then

cleanup22.sink.split:
  %conv.sink = phi i64 [ %conv, %if.then ], [ -2, %if.end9 ]
  %STATUS.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 7
  store i64 %conv.sink, ptr %STATUS.i, align 8
  %8 = load i64, ptr %MEETING.i, align 8
  %9 = inttoptr i64 %8 to ptr
  %FAILED.i = getelementptr inbounds %struct.MeetingWord, ptr %9, i64 0, i32 9
  %10 = load i64, ptr %FAILED.i, align 8
  %11 = inttoptr i64 %10 to ptr
  store i64 1, ptr %11, align 8
  br label %cleanup22

cleanup22:
  %retval.2.ph = phi i32 [ 0, %if.end ], [ 1, %cleanup22.sink.split ]
  ret i32 %retval.2.ph
}

define i32 @barrier(ptr %op, ptr %operands) {
entry:
  %request = alloca i64, align 8
  %call = tail call fastcc i32 @meet(ptr %op, i64 0, ptr %op, i64 0)
  %cmp.not = icmp eq i32 %call, 0
  br i1 %cmp.not, label %if.end, label %if.then

if.then:
  %cmp1 = icmp eq i32 %call, 1
  %conv = zext i1 %cmp1 to i32
  br label %cleanup

if.end:
  %FUNCTION = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 1
  %0 = load i64, ptr %FUNCTION, align 8
  %1 = inttoptr i64 %0 to ptr
  %MEETING.i.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 8
  %2 = load i64, ptr %MEETING.i.i, align 8
  %3 = inttoptr i64 %2 to ptr
  %COMM.i = getelementptr inbounds %struct.MeetingWord, ptr %3, i64 0, i32 2
  %4 = load i64, ptr %COMM.i, align 8
  %call3 = call i32 %1(i64 %4, ptr %request)
  %tobool.not.i = icmp eq i32 %call3, 0
  br i1 %tobool.not.i, label %cond.false.i, label %cond.true.i

cond.true.i:
  %conv.i = sext i32 %call3 to i64
  %STATUS.i.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 7
  store i64 %conv.i, ptr %STATUS.i.i, align 8
  %5 = load i64, ptr %MEETING.i.i, align 8
  %6 = inttoptr i64 %5 to ptr
  %FAILED.i.i = getelementptr inbounds %struct.MeetingWord, ptr %6, i64 0, i32 9
  %7 = load i64, ptr %FAILED.i.i, align 8
  %8 = inttoptr i64 %7 to ptr
  store i64 1, ptr %8, align 8
  br label %cleanup

cond.false.i:
  %call1.i = call fastcc i32 @wait(ptr %op, i32 1, ptr %request)
  br label %cleanup

cleanup:
  %retval.0 = phi i32 [ %conv, %if.then ], [ 1, %cond.true.i ], [ %call1.i, %cond.false.i ]
  ret i32 %retval.0
}

define internal fastcc i32 @meet(ptr %op, i64 %count, ptr %in, i64 %nbytes) {
entry:
  %requests = alloca [2 x i64], align 16
  %MEETING.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 8
  %0 = load i64, ptr %MEETING.i, align 8
  %1 = inttoptr i64 %0 to ptr
  %FAILED = getelementptr inbounds %struct.MeetingWord, ptr %1, i64 0, i32 9
  %2 = load i64, ptr %FAILED, align 8
  %3 = inttoptr i64 %2 to ptr
  %4 = load i64, ptr %3, align 8
  %tobool.not = icmp eq i64 %4, 0
  br i1 %tobool.not, label %if.end, label %if.then

if.then:
  %STATUS.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 7
  store i64 -4, ptr %STATUS.i, align 8
  %5 = load i64, ptr %FAILED, align 8
  %6 = inttoptr i64 %5 to ptr
  store i64 1, ptr %6, align 8
  br label %cleanup88

if.end:
  %RECEIVE = getelementptr inbounds %struct.MeetingWord, ptr %1, i64 0, i32 4
  %7 = load i64, ptr %RECEIVE, align 8
  %8 = inttoptr i64 %7 to ptr
  %SEND = getelementptr inbounds %struct.MeetingWord, ptr %1, i64 0, i32 5
  %9 = load i64, ptr %SEND, align 8
  %10 = inttoptr i64 %9 to ptr
  %COMM.i = getelementptr inbounds %struct.MeetingWord, ptr %1, i64 0, i32 2
  %11 = load i64, ptr %COMM.i, align 8
  %BYTE = getelementptr inbounds %struct.MeetingWord, ptr %1, i64 0, i32 3
  %12 = load i64, ptr %BYTE, align 8
  %SIZE.i = getelementptr inbounds %struct.MeetingWord, ptr %1, i64 0, i32 1
  %13 = load i64, ptr %SIZE.i, align 8
  %RANK.i = getelementptr inbounds %struct.MeetingWord, ptr %1, i64 0, i32 0
  %14 = load i64, ptr %RANK.i, align 8
  %cmp.i = icmp ult i64 %nbytes, 2049
  %add.i.i = add nuw nsw i64 %nbytes, 31
  %and.i.i = and i64 %add.i.i, -8
  %mul.i = mul i64 %13, %and.i.i
  %cmp1.i = icmp ult i64 %mul.i, 2049
  %15 = select i1 %cmp.i, i1 %cmp1.i, i1 false
  %cond = select i1 %15, i64 %nbytes, i64 0
  %add.i = add nuw nsw i64 %cond, 31
  %and.i = and i64 %add.i, -8
  %BLOCKS.i = getelementptr inbounds %struct.MeetingWord, ptr %1, i64 0, i32 10
  %16 = load i64, ptr %BLOCKS.i, align 8
  %17 = inttoptr i64 %16 to ptr
  %PLACE = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 9
  %18 = load i64, ptr %PLACE, align 8
  store i64 %18, ptr %17, align 8
  %KIND = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 10
  %19 = load i64, ptr %KIND, align 8
  %arrayidx9 = getelementptr i64, ptr %17, i64 1
  store i64 %19, ptr %arrayidx9, align 8
  %arrayidx10 = getelementptr i64, ptr %17, i64 2
  store i64 %count, ptr %arrayidx10, align 8
  %add.ptr = getelementptr i8, ptr %17, i64 24
  tail call void @llvm.memcpy.p0.p0.i64(ptr %add.ptr, ptr %in, i64 %cond, i1 false)
  %add16 = add i64 %14, %13
  %arrayidx21 = getelementptr inbounds [2 x i64], ptr %requests, i64 0, i64 0
  %arrayidx25 = getelementptr inbounds [2 x i64], ptr %requests, i64 0, i64 1
  br label %do.body

do.body:
  %d.0 = phi i64 [ 1, %if.end ], [ %mul60163, %do.cond ]
  %sub = sub i64 %13, %d.0
  %cmp = icmp ult i64 %d.0, %sub
  %cond15 = select i1 %cmp, i64 %d.0, i64 %sub
  %add = add i64 %d.0, %14
  %rem = urem i64 %add, %13
  %conv = trunc i64 %rem to i32
  %sub17 = sub i64 %add16, %d.0
  %rem18 = urem i64 %sub17, %13
  %conv19 = trunc i64 %rem18 to i32
  %mul = mul i64 %d.0, %and.i
  %add.ptr20 = getelementptr i8, ptr %17, i64 %mul
  %call22 = call i32 %8(ptr %add.ptr20, i32 2048, i64 %12, i32 %conv19, i32 1, i64 %11, ptr %arrayidx21)
  %mul23 = mul i64 %cond15, %and.i
  %conv24 = trunc i64 %mul23 to i32
  %call26 = call i32 %10(ptr %17, i32 %conv24, i64 %12, i32 %conv, i32 1, i64 %11, ptr %arrayidx25)
  %or = or i32 %call26, %call22
  %tobool27.not = icmp eq i32 %or, 0
  br i1 %tobool27.not, label %if.end31, label %if.then28

if.then28:
  %conv29 = sext i32 %or to i64
  %STATUS.i157 = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 7
  store i64 %conv29, ptr %STATUS.i157, align 8
  %20 = load i64, ptr %MEETING.i, align 8
  %21 = inttoptr i64 %20 to ptr
  %FAILED.i159 = getelementptr inbounds %struct.MeetingWord, ptr %21, i64 0, i32 9
  %22 = load i64, ptr %FAILED.i159, align 8
  %23 = inttoptr i64 %22 to ptr
  store i64 1, ptr %23, align 8
  br label %cleanup75

if.end31:
  %call32 = call fastcc i32 @wait(ptr %op, i32 2, ptr %arrayidx21)
  %tobool33.not = icmp eq i32 %call32, 0
  br i1 %tobool33.not, label %for.cond.preheader, label %cleanup75

for.cond.preheader:
  %cmp36177.not = icmp eq i64 %cond15, 0
  br i1 %cmp36177.not, label %do.cond, label %for.body.lr.ph

for.body.lr.ph:
  %24 = load i64, ptr %17, align 8
  %25 = load i64, ptr %arrayidx9, align 8
  %26 = load i64, ptr %arrayidx10, align 8
  br label %for.body

for.body:
  %j.0178 = phi i64 [ 0, %for.body.lr.ph ], [ %inc, %for.inc ]
  %mul38 = mul i64 %j.0178, %and.i
  %add.ptr39 = getelementptr i8, ptr %add.ptr20, i64 %mul38
  %27 = load i64, ptr %add.ptr39, align 8
  %xor = xor i64 %24, %27
  %arrayidx42 = getelementptr i64, ptr %add.ptr39, i64 1
  %28 = load i64, ptr %arrayidx42, align 8
  %xor44 = xor i64 %25, %28
  %or45 = or i64 %xor44, %xor
  %arrayidx46 = getelementptr i64, ptr %add.ptr39, i64 2
  %29 = load i64, ptr %arrayidx46, align 8
  %xor48 = xor i64 %26, %29
  %or49 = or i64 %or45, %xor48
  %tobool50.not = icmp eq i64 %or49, 0
  br i1 %tobool50.not, label %for.inc, label %cleanup61

for.inc:
  %inc = add nuw i64 %j.0178, 1
  %exitcond.not = icmp eq i64 %inc, %cond15
  br i1 %exitcond.not, label %do.cond, label %for.body

cleanup61:
  %30 = add i64 %d.0, %j.0178
  %sub54 = sub i64 %add16, %30
  %rem55 = urem i64 %sub54, %13
  %FOUND.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 12
  call void @llvm.memcpy.p0.p0.i64(ptr align 8 dereferenceable(24) %FOUND.i, ptr align 8 dereferenceable(24) %add.ptr39, i64 24, i1 false)
  %31 = load i64, ptr %MEETING.i, align 8
  %32 = inttoptr i64 %31 to ptr
  %BLOCKS.i.i = getelementptr inbounds %struct.MeetingWord, ptr %32, i64 0, i32 10
  %33 = load i64, ptr %BLOCKS.i.i, align 8
  %34 = inttoptr i64 %33 to ptr
  %arrayidx.i = getelementptr i64, ptr %34, i64 2
  %35 = load i64, ptr %arrayidx.i, align 8
  %OWN_COUNT.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 11
  store i64 %35, ptr %OWN_COUNT.i, align 8
  %FOUND_RANK.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 14
  store i64 %rem55, ptr %FOUND_RANK.i, align 8
  %STATUS.i.i = getelementptr inbounds %struct.CollectiveWord, ptr %op, i64 0, i32 7
  store i64 -3, ptr %STATUS.i.i, align 8
  %FAILED.i.i = getelementptr inbounds %struct.MeetingWord, ptr %32, i64 0, i32 9
  %36 = load i64, ptr %FAILED.i.i, align 8
  %37 = inttoptr i64 %36 to ptr
  store i64 1, ptr %37, align 8
  br label %cleanup75

do.cond:
  %mul60163 = shl i64 %d.0, 1
  %cmp68 = icmp ult i64 %mul60163, %13
  %38 = select i1 %cmp68, i1 %15, i1 false
  br i1 %38, label %do.body, label %do.end

do.end:
  %cond74 = select i1 %15, i32 2, i32 0
  br label %cleanup75

cleanup75:
  %retval.5 = phi i32 [ %cond74, %do.end ], [ 1, %cleanup61 ], [ 1, %if.then28 ], [ 1, %if.end31 ]
  br label %cleanup88

cleanup88:
  %retval.6 = phi i32 [ 1, %if.then ], [ %retval.5, %cleanup75 ]
  ret i32 %retval.6
}

declare i32 @sched_yield()

declare i32 @clock_gettime(i32, ptr)
