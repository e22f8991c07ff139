; Made of results.c by make parts, from 307fbfb3f77ca0f1. Do not edit.

%struct.RecyclerWord = type { i64, i64, i64, i64, i64, i64, i64, [1 x i64], i64 }
%struct.IdleRecord = type { i64, i64, i64 }
%struct.Header = type { ptr, i64 }

define ptr @take(ptr %pool, i64 %size) {
entry:
  %cmp = icmp ult i64 %size, 65536
  br i1 %cmp, label %if.then, label %lor.lhs.false

lor.lhs.false:
  %LOCK.i = getelementptr inbounds %struct.RecyclerWord, ptr %pool, i64 0, i32 0
  %0 = cmpxchg ptr %LOCK.i, i64 0, i64 1 acquire monotonic, align 8
  %1 = extractvalue { i64, i1 } %0, 1
  br i1 %1, label %if.end, label %if.then

if.then:
  %call1 = tail call fastcc ptr @fresh(ptr %pool, i64 %size)
  br label %return

if.end:
  %CLOCK = getelementptr inbounds %struct.RecyclerWord, ptr %pool, i64 0, i32 3
  %2 = load i64, ptr %CLOCK, align 8
  %inc = add i64 %2, 1
  store i64 %inc, ptr %CLOCK, align 8
  %div = lshr i64 %size, 3
  %add = add nuw nsw i64 %div, 4096
  %COUNT = getelementptr inbounds %struct.RecyclerWord, ptr %pool, i64 0, i32 5
  %3 = load i64, ptr %COUNT, align 8
  %RECORDS.i = getelementptr inbounds %struct.RecyclerWord, ptr %pool, i64 0, i32 8
  br label %for.cond

for.cond:
  %i.0 = phi i64 [ %3, %if.end ], [ %dec, %for.body ]
  %dec = add i64 %i.0, -1
  %cmp2 = icmp sgt i64 %i.0, 0
  br i1 %cmp2, label %for.body, label %for.end

for.body:
  %CAPACITY = getelementptr %struct.IdleRecord, ptr %RECORDS.i, i64 %dec, i32 1
  %4 = load i64, ptr %CAPACITY, align 8
  %sub = sub i64 %4, %size
  %cmp4.not = icmp ugt i64 %sub, %add
  br i1 %cmp4.not, label %for.cond, label %cleanup.thread

cleanup.thread:
  %arrayidx.i = getelementptr %struct.IdleRecord, ptr %RECORDS.i, i64 %dec
  %DATA.i = getelementptr inbounds %struct.IdleRecord, ptr %arrayidx.i, i64 0, i32 0
  %5 = load i64, ptr %DATA.i, align 8
  %6 = inttoptr i64 %5 to ptr
  %IDLE.i = getelementptr inbounds %struct.RecyclerWord, ptr %pool, i64 0, i32 2
  %7 = load i64, ptr %IDLE.i, align 8
  %sub.i = sub i64 %7, %4
  store i64 %sub.i, ptr %IDLE.i, align 8
  %dec.i = add i64 %3, -1
  store i64 %dec.i, ptr %COUNT, align 8
  %arrayidx2.i = getelementptr %struct.IdleRecord, ptr %RECORDS.i, i64 %dec.i
  tail call void @llvm.memcpy.p0.p0.i64(ptr align 8 dereferenceable(24) %arrayidx.i, ptr align 8 dereferenceable(24) %arrayidx2.i, i64 24, i1 false)
  %RECYCLED = getelementptr inbounds %struct.RecyclerWord, ptr %pool, i64 0, i32 4
  %8 = load i64, ptr %RECYCLED, align 8
  %inc7 = add i64 %8, 1
  store i64 %inc7, ptr %RECYCLED, align 8
  store atomic i64 0, ptr %LOCK.i release, align 8
  br label %return

for.end:
  store atomic i64 0, ptr %LOCK.i release, align 8
  %call9 = tail call fastcc ptr @fresh(ptr %pool, i64 %size)
  br label %return

return:
  %retval.2 = phi ptr [ %call1, %if.then ], [ %call9, %for.end ], [ %6, %cleanup.thread ]
  ret ptr %retval.2
}

define internal fastcc ptr @fresh(ptr %pool, i64 %size) {
entry:
  %begin = alloca ptr, align 8
  %cmp = icmp ugt i64 %size, 4611686018427387904
  br i1 %cmp, label %return, label %if.end

if.end:
  %sub = add nuw nsw i64 %size, 4095
  %and = and i64 %sub, -4096
  %add1 = or i64 %and, 64
  %cmp2 = icmp ugt i64 %size, 2097151
  br i1 %cmp2, label %if.end13, label %if.end13.thread

if.end13:
  %sub5 = add nuw nsw i64 %and, 2097215
  %and6 = and i64 %sub5, -2097152
  %cmp7 = icmp ult i64 %size, 8388616
  %div = lshr i64 %size, 3
  %spec.select = select i1 %cmp7, i64 %div, i64 1048576
  %sub9 = sub nsw i64 %and6, %size
  %cmp10.not = icmp ugt i64 %sub9, %spec.select
  %total.0 = select i1 %cmp10.not, i64 %add1, i64 %and6
  %call = call i32 @posix_memalign(ptr %begin, i64 2097152, i64 %total.0)
  %tobool16.not = icmp eq i32 %call, 0
  br i1 %tobool16.not, label %land.lhs.true, label %cleanup

if.end13.thread:
  %call46 = call i32 @posix_memalign(ptr %begin, i64 64, i64 %add1)
  %tobool16.not47 = icmp eq i32 %call46, 0
  br i1 %tobool16.not47, label %if.end27, label %cleanup

land.lhs.true:
  %ADVICE = getelementptr inbounds %struct.RecyclerWord, ptr %pool, i64 0, i32 6
  %0 = load i64, ptr %ADVICE, align 8
  %tobool21.not = icmp eq i64 %0, 0
  br i1 %tobool21.not, label %if.end27, label %if.then22

if.then22:
  %1 = load ptr, ptr %begin, align 8
  %and23 = and i64 %total.0, -2097152
  %conv25 = trunc i64 %0 to i32
  %call26 = call i32 @madvise(ptr %1, i64 %and23, i32 %conv25)
  br label %if.end27

if.end27:
  %total.149 = phi i64 [ %total.0, %if.then22 ], [ %total.0, %land.lhs.true ], [ %add1, %if.end13.thread ]
  %2 = load ptr, ptr %begin, align 8
  %sub29 = add i64 %total.149, -64
  store ptr %2, ptr %2, align 8
  %.compoundliteral.sroa.2.0..sroa_idx = getelementptr inbounds i8, ptr %2, i64 8
  store i64 %sub29, ptr %.compoundliteral.sroa.2.0..sroa_idx, align 8
  %3 = load ptr, ptr %begin, align 8
  %add.ptr = getelementptr i8, ptr %3, i64 64
  br label %cleanup

cleanup:
  %retval.0 = phi ptr [ %add.ptr, %if.end27 ], [ null, %if.end13 ], [ null, %if.end13.thread ]
  br label %return

return:
  %retval.1 = phi ptr [ %retval.0, %cleanup ], [ null, %entry ]
  ret ptr %retval.1
}

define void @give(ptr %pool, ptr %data, i64 %size) {
entry:
  %cmp = icmp eq ptr %data, null
  br i1 %cmp, label %cleanup.cont30, label %if.end

if.end:
  %add.ptr.i = getelementptr i8, ptr %data, i64 -64
  %capacity1 = getelementptr inbounds %struct.Header, ptr %add.ptr.i, i64 0, i32 1
  %0 = load i64, ptr %capacity1, align 8
  %LIMIT = getelementptr inbounds %struct.RecyclerWord, ptr %pool, i64 0, i32 1
  %1 = load i64, ptr %LIMIT, align 8
  %cmp2 = icmp ult i64 %0, 65536
  %cmp3 = icmp ugt i64 %0, %1
  %or.cond = select i1 %cmp2, i1 true, i1 %cmp3
  br i1 %or.cond, label %if.then6, label %lor.lhs.false4

lor.lhs.false4:
  %LOCK.i = getelementptr inbounds %struct.RecyclerWord, ptr %pool, i64 0, i32 0
  %2 = cmpxchg ptr %LOCK.i, i64 0, i64 1 acquire monotonic, align 8
  %3 = extractvalue { i64, i1 } %2, 1
  br i1 %3, label %if.end7, label %if.then6

if.then6:
  %begin.i = getelementptr inbounds %struct.Header, ptr %add.ptr.i, i64 0, i32 0
  %4 = load ptr, ptr %begin.i, align 8
  tail call void @free(ptr %4)
  br label %cleanup.cont30

if.end7:
  %CLOCK = getelementptr inbounds %struct.RecyclerWord, ptr %pool, i64 0, i32 3
  %5 = load i64, ptr %CLOCK, align 8
  %inc = add i64 %5, 1
  store i64 %inc, ptr %CLOCK, align 8
  %COUNT = getelementptr inbounds %struct.RecyclerWord, ptr %pool, i64 0, i32 5
  %6 = load i64, ptr %COUNT, align 8
  %cmp877 = icmp sgt i64 %6, 0
  br i1 %cmp877, label %while.body.lr.ph, label %while.end

while.body.lr.ph:
  %RECORDS.i.i = getelementptr inbounds %struct.RecyclerWord, ptr %pool, i64 0, i32 8
  %SINCE62 = getelementptr %struct.IdleRecord, ptr %RECORDS.i.i, i64 0, i32 2
  %IDLE = getelementptr inbounds %struct.RecyclerWord, ptr %pool, i64 0, i32 2
  br label %while.body

while.body:
  %7 = phi i64 [ %6, %while.body.lr.ph ], [ %18, %cleanup ]
  %cmp12.i.not = icmp eq i64 %7, 1
  br i1 %cmp12.i.not, label %oldest.exit.thread, label %for.body.i

for.body.i:
  %i.014.i = phi i64 [ %inc.i, %for.body.i ], [ 1, %while.body ]
  %best.013.i = phi i64 [ %spec.select.i, %for.body.i ], [ 0, %while.body ]
  %SINCE.i = getelementptr %struct.IdleRecord, ptr %RECORDS.i.i, i64 %i.014.i, i32 2
  %8 = load i64, ptr %SINCE.i, align 8
  %SINCE3.i = getelementptr %struct.IdleRecord, ptr %RECORDS.i.i, i64 %best.013.i, i32 2
  %9 = load i64, ptr %SINCE3.i, align 8
  %cmp4.i = icmp slt i64 %8, %9
  %spec.select.i = select i1 %cmp4.i, i64 %i.014.i, i64 %best.013.i
  %inc.i = add nuw nsw i64 %i.014.i, 1
  %exitcond.not.i = icmp eq i64 %inc.i, %7
  br i1 %exitcond.not.i, label %oldest.exit, label %for.body.i

oldest.exit:
  %SINCE = getelementptr %struct.IdleRecord, ptr %RECORDS.i.i, i64 %spec.select.i, i32 2
  %10 = load i64, ptr %SINCE, align 8
  %sub = sub i64 %inc, %10
  %cmp11 = icmp sgt i64 %sub, 4096
  %cmp13.not = icmp eq i64 %7, 128
  %or.cond76 = select i1 %cmp11, i1 true, i1 %cmp13.not
  br i1 %or.cond76, label %cleanup, label %land.lhs.true14

oldest.exit.thread:
  %11 = load i64, ptr %SINCE62, align 8
  %sub63 = sub i64 %inc, %11
  %cmp1164 = icmp sgt i64 %sub63, 4096
  br i1 %cmp1164, label %cleanup, label %land.lhs.true14

land.lhs.true14:
  %best.0.lcssa.i6573 = phi i64 [ 0, %oldest.exit.thread ], [ %spec.select.i, %oldest.exit ]
  %12 = load i64, ptr %IDLE, align 8
  %add = add i64 %12, %0
  %cmp15.not = icmp ugt i64 %add, %1
  br i1 %cmp15.not, label %cleanup, label %while.end

cleanup:
  %best.0.lcssa.i66 = phi i64 [ 0, %oldest.exit.thread ], [ %best.0.lcssa.i6573, %land.lhs.true14 ], [ %spec.select.i, %oldest.exit ]
  %arrayidx.i = getelementptr %struct.IdleRecord, ptr %RECORDS.i.i, i64 %best.0.lcssa.i66
  %DATA.i = getelementptr inbounds %struct.IdleRecord, ptr %arrayidx.i, i64 0, i32 0
  %13 = load i64, ptr %DATA.i, align 8
  %14 = inttoptr i64 %13 to ptr
  %CAPACITY.i = getelementptr %struct.IdleRecord, ptr %RECORDS.i.i, i64 %best.0.lcssa.i66, i32 1
  %15 = load i64, ptr %CAPACITY.i, align 8
  %16 = load i64, ptr %IDLE, align 8
  %sub.i = sub i64 %16, %15
  store i64 %sub.i, ptr %IDLE, align 8
  %dec.i = add i64 %7, -1
  store i64 %dec.i, ptr %COUNT, align 8
  %arrayidx2.i = getelementptr %struct.IdleRecord, ptr %RECORDS.i.i, i64 %dec.i
  tail call void @llvm.memcpy.p0.p0.i64(ptr align 8 dereferenceable(24) %arrayidx.i, ptr align 8 dereferenceable(24) %arrayidx2.i, i64 24, i1 false)
  %add.ptr.i.i56 = getelementptr i8, ptr %14, i64 -64
  %begin.i57 = getelementptr inbounds %struct.Header, ptr %add.ptr.i.i56, i64 0, i32 0
  %17 = load ptr, ptr %begin.i57, align 8
  tail call void @free(ptr %17)
  %18 = load i64, ptr %COUNT, align 8
  %cmp8 = icmp sgt i64 %18, 0
  br i1 %cmp8, label %while.body, label %while.end

while.end:
  %19 = phi i64 [ %6, %if.end7 ], [ %18, %cleanup ], [ %7, %land.lhs.true14 ]
  %RECORDS.i58 = getelementptr inbounds %struct.RecyclerWord, ptr %pool, i64 0, i32 8
  %inc22 = add i64 %19, 1
  store i64 %inc22, ptr %COUNT, align 8
  %arrayidx23 = getelementptr %struct.IdleRecord, ptr %RECORDS.i58, i64 %19
  %20 = ptrtoint ptr %data to i64
  store i64 %20, ptr %arrayidx23, align 8
  %.compoundliteral.sroa.2.0.arrayidx23.sroa_idx = getelementptr inbounds i8, ptr %arrayidx23, i64 8
  store i64 %0, ptr %.compoundliteral.sroa.2.0.arrayidx23.sroa_idx, align 8
  %.compoundliteral.sroa.3.0.arrayidx23.sroa_idx = getelementptr inbounds i8, ptr %arrayidx23, i64 16
  store i64 %inc, ptr %.compoundliteral.sroa.3.0.arrayidx23.sroa_idx, align 8
  %IDLE25 = getelementptr inbounds %struct.RecyclerWord, ptr %pool, i64 0, i32 2
  %21 = load i64, ptr %IDLE25, align 8
  %add26 = add i64 %21, %0
  store i64 %add26, ptr %IDLE25, align 8
  store atomic i64 0, ptr %LOCK.i release, align 8
  br label %cleanup.cont30

cleanup.cont30:
  ret void
}

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define ptr @take_zeroed(ptr %pool, i64 %count, i64 %each) {
entry:
  %0 = tail call { i64, i1 } @llvm.umul.with.overflow.i64(i64 %count, i64 %each)
  %1 = extractvalue { i64, i1 } %0, 1
  %2 = extractvalue { i64, i1 } %0, 0
  br i1 %1, label %cleanup, label %if.end

if.end:
  %call = tail call ptr @take(ptr %pool, i64 %2)
  %cmp = icmp eq ptr %call, null
  br i1 %cmp, label %cleanup, label %cond.false

cond.false:
  tail call void @llvm.memset.p0.i64(ptr align 1 %call, i8 0, i64 %2, i1 false)
  br label %cleanup

cleanup:
  %retval.0 = phi ptr [ null, %entry ], [ %call, %cond.false ], [ null, %if.end ]
  ret ptr %retval.0
}

declare { i64, i1 } @llvm.umul.with.overflow.i64(i64, i64)

declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define ptr @resize(ptr %pool, ptr %data, i64 %size) {
entry:
  %cmp = icmp eq ptr %data, null
  br i1 %cmp, label %if.then, label %if.end

if.then:
  %call = tail call ptr @take(ptr %pool, i64 %size)
  br label %return

if.end:
  %add.ptr.i = getelementptr i8, ptr %data, i64 -64
  %capacity2 = getelementptr inbounds %struct.Header, ptr %add.ptr.i, i64 0, i32 1
  %0 = load i64, ptr %capacity2, align 8
  %cmp3.not = icmp ult i64 %0, %size
  br i1 %cmp3.not, label %if.end5, label %return

if.end5:
  %call6 = tail call ptr @take(ptr %pool, i64 %size)
  %cmp7 = icmp eq ptr %call6, null
  br i1 %cmp7, label %return, label %if.end9

if.end9:
  tail call void @llvm.memcpy.p0.p0.i64(ptr align 1 %call6, ptr align 1 %data, i64 %0, i1 false)
  tail call void @give(ptr %pool, ptr %data, i64 undef)
  br label %return

return:
  %retval.2 = phi ptr [ %call, %if.then ], [ %data, %if.end ], [ %call6, %if.end9 ], [ null, %if.end5 ]
  ret ptr %retval.2
}

define void @trim(ptr %pool) {
entry:
  %LOCK.i = getelementptr inbounds %struct.RecyclerWord, ptr %pool, i64 0, i32 0
  %0 = cmpxchg ptr %LOCK.i, i64 0, i64 1 acquire monotonic, align 8
  %1 = extractvalue { i64, i1 } %0, 1
  br i1 %1, label %while.cond.preheader, label %return

while.cond.preheader:
  %COUNT = getelementptr inbounds %struct.RecyclerWord, ptr %pool, i64 0, i32 5
  %2 = load i64, ptr %COUNT, align 8
  %cmp8 = icmp sgt i64 %2, 0
  br i1 %cmp8, label %while.body.lr.ph, label %while.end

while.body.lr.ph:
  %RECORDS.i.i = getelementptr inbounds %struct.RecyclerWord, ptr %pool, i64 0, i32 8
  %IDLE.i = getelementptr inbounds %struct.RecyclerWord, ptr %pool, i64 0, i32 2
  br label %while.body

while.body:
  %3 = phi i64 [ %2, %while.body.lr.ph ], [ %9, %while.body ]
  %sub = add nsw i64 %3, -1
  %DATA.i = getelementptr %struct.IdleRecord, ptr %RECORDS.i.i, i64 %sub, i32 0
  %4 = load i64, ptr %DATA.i, align 8
  %5 = inttoptr i64 %4 to ptr
  %CAPACITY.i = getelementptr %struct.IdleRecord, ptr %RECORDS.i.i, i64 %sub, i32 1
  %6 = load i64, ptr %CAPACITY.i, align 8
  %7 = load i64, ptr %IDLE.i, align 8
  %sub.i = sub i64 %7, %6
  store i64 %sub.i, ptr %IDLE.i, align 8
  store i64 %sub, ptr %COUNT, align 8
  %add.ptr.i.i = getelementptr i8, ptr %5, i64 -64
  %begin.i = getelementptr inbounds %struct.Header, ptr %add.ptr.i.i, i64 0, i32 0
  %8 = load ptr, ptr %begin.i, align 8
  tail call void @free(ptr %8)
  %9 = load i64, ptr %COUNT, align 8
  %cmp = icmp sgt i64 %9, 0
  br i1 %cmp, label %while.body, label %while.end

while.end:
  store atomic i64 0, ptr %LOCK.i release, align 8
  br label %return

return:
  ret void
}

declare i32 @posix_memalign(ptr, i64, i64)

declare i32 @madvise(ptr, i64, i32)

declare void @free(ptr)
