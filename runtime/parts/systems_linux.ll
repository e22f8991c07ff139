; Made of systems.c by make parts LINUX, from a8830688fe8bbd95. Do not edit.

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
  br i1 %cmp1, label %cleanup, label %if.end

if.end:
  %arraydecay2 = getelementptr inbounds [16 x i64], ptr %apart, i64 0, i64 0
  call void @llvm.memcpy.p0.p0.i64(ptr align 16 dereferenceable(128) %arraydecay2, ptr align 16 dereferenceable(128) %arraydecay, i64 128, i1 false)
  %rem13 = and i64 %processor, 63
  %shl = shl nuw i64 1, %rem13
  %neg = xor i64 %shl, -1
  %div1415 = lshr i64 %processor, 6
  %arrayidx = getelementptr [16 x i64], ptr %apart, i64 0, i64 %div1415
  %0 = load i64, ptr %arrayidx, align 8
  %and = and i64 %0, %neg
  store i64 %and, ptr %arrayidx, align 8
  %call5 = call i32 @sched_setaffinity(i32 0, i64 128, ptr %arraydecay2)
  %tobool.not = icmp eq i32 %call5, 0
  br i1 %tobool.not, label %if.then6, label %cleanup

if.then6:
  %call8 = call i32 @sched_setaffinity(i32 0, i64 128, ptr %arraydecay)
  br label %cleanup

cleanup:
  ret void
}

declare i32 @sched_getaffinity(i32, i64, ptr)

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

declare i32 @sched_setaffinity(i32, i64, ptr)
