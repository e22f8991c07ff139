; Made of systems.c by make parts LINUX, from a2691bf4d621cedb. Do not edit.

define hidden i64 @processor() {
entry:
  %call = tail call i32 @sched_getcpu()
  %conv = sext i32 %call to i64
  ret i64 %conv
}

declare i32 @sched_getcpu()

define hidden void @move_from(i64 %processor) {
entry:
  %free = alloca [16 x i64], align 16
  %apart = alloca [16 x i64], align 16
  %cmp = icmp ugt i64 %processor, 1023
  br i1 %cmp, label %cleanup, label %lor.lhs.false

lor.lhs.false:
  %arraydecay = getelementptr inbounds [16 x i64], ptr %free, i64 0, i64 0
  %call = call i32 @sched_getaffinity(i32 0, i64 128, ptr %arraydecay)
  %cmp1 = icmp slt i32 %call, 0
  br i1 %cmp1, label %cleanup, label %for.body

for.cond.cleanup:
  %rem18 = and i64 %processor, 63
  %shl = shl nuw i64 1, %rem18
  %neg = xor i64 %shl, -1
  %div = sdiv i64 %processor, 64
  %arrayidx5 = getelementptr [16 x i64], ptr %apart, i64 0, i64 %div
  %0 = load i64, ptr %arrayidx5, align 8
  %and = and i64 %0, %neg
  store i64 %and, ptr %arrayidx5, align 8
  %arraydecay6 = getelementptr inbounds [16 x i64], ptr %apart, i64 0, i64 0
  %call7 = call i32 @sched_setaffinity(i32 0, i64 128, ptr %arraydecay6)
  %tobool.not = icmp eq i32 %call7, 0
  br i1 %tobool.not, label %if.then8, label %cleanup

for.body:
  %indvars.iv = phi i64 [ %indvars.iv.next, %for.body ], [ 0, %lor.lhs.false ]
  %arrayidx = getelementptr [16 x i64], ptr %free, i64 0, i64 %indvars.iv
  %1 = load i64, ptr %arrayidx, align 8
  %arrayidx4 = getelementptr [16 x i64], ptr %apart, i64 0, i64 %indvars.iv
  store i64 %1, ptr %arrayidx4, align 8
  %indvars.iv.next = add nuw nsw i64 %indvars.iv, 1
  %exitcond.not = icmp eq i64 %indvars.iv.next, 16
  br i1 %exitcond.not, label %for.cond.cleanup, label %for.body

if.then8:
  %call10 = call i32 @sched_setaffinity(i32 0, i64 128, ptr %arraydecay)
  br label %cleanup

cleanup:
  ret void
}

declare i32 @sched_getaffinity(i32, i64, ptr)

declare i32 @sched_setaffinity(i32, i64, ptr)
