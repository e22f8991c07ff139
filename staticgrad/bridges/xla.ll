; Made of xla.c by make parts, from 74f8d9f7b6c8ecb5. Do not edit.

%struct.ErrorArguments = type { %struct.Head, ptr, i32 }
%struct.Head = type { i64, ptr }
%struct.Frame = type { i64, ptr, ptr, ptr, i32, %struct.anon, %struct.anon, %struct.anon.0 }
%struct.anon = type { %struct.Head, i64, ptr, ptr }
%struct.anon.0 = type { %struct.Head, i64, ptr, ptr, ptr }
%struct.Extension = type { i64, i32, ptr, ptr }
%struct.Metadata = type { i64, %struct.Version, i32 }
%struct.Version = type { %struct.Head, i32, i32 }
%struct.anon.1 = type { i64, ptr }
%struct.ProgramWord = type { i64, i64, i64, i64, i64, i64, i64, i64 }
%struct.Api = type { %struct.Head, %struct.Version, ptr, ptr }
%struct.Buffer = type { %struct.Head, i32, ptr, i64, ptr }
%struct.Record = type { i64, i64, i64, i64, i64, i64 }

@nowhere = internal global [16 x i8] zeroinitializer, align 16

define ptr @handler(ptr %frame) {
entry:
  %arguments.i324 = alloca %struct.ErrorArguments, align 8
  %arguments.i316 = alloca %struct.ErrorArguments, align 8
  %arguments.i300 = alloca %struct.ErrorArguments, align 8
  %arguments.i270 = alloca %struct.ErrorArguments, align 8
  %arguments.i = alloca %struct.ErrorArguments, align 8
  %extension = getelementptr inbounds %struct.Frame, ptr %frame, i64 0, i32 1
  %0 = load ptr, ptr %extension, align 8
  %cmp.not = icmp eq ptr %0, null
  br i1 %cmp.not, label %if.end, label %land.lhs.true

land.lhs.true:
  %type = getelementptr inbounds %struct.Extension, ptr %0, i64 0, i32 1
  %1 = load i32, ptr %type, align 8
  %cmp2 = icmp eq i32 %1, 1
  br i1 %cmp2, label %if.then, label %if.end

if.then:
  %metadata4 = getelementptr inbounds %struct.Extension, ptr %0, i64 0, i32 3
  %2 = load ptr, ptr %metadata4, align 8
  %major = getelementptr inbounds %struct.Metadata, ptr %2, i64 0, i32 1, i32 1
  store i32 $MAJOR, ptr %major, align 8
  %minor = getelementptr inbounds %struct.Metadata, ptr %2, i64 0, i32 1, i32 2
  store i32 $MINOR, ptr %minor, align 4
  %traits = getelementptr inbounds %struct.Metadata, ptr %2, i64 0, i32 2
  store i32 0, ptr %traits, align 8
  br label %return

if.end:
  %items = getelementptr inbounds %struct.Frame, ptr %frame, i64 0, i32 7, i32 4
  %3 = load ptr, ptr %items, align 8
  %4 = load ptr, ptr %3, align 8
  %value = getelementptr inbounds %struct.anon.1, ptr %4, i64 0, i32 1
  %5 = load ptr, ptr %value, align 8
  %6 = load ptr, ptr %5, align 8
  %RECORDS = getelementptr inbounds %struct.ProgramWord, ptr %6, i64 0, i32 3
  %7 = load i64, ptr %RECORDS, align 8
  %8 = inttoptr i64 %7 to ptr
  %FEEDS = getelementptr inbounds %struct.ProgramWord, ptr %6, i64 0, i32 1
  %9 = load i64, ptr %FEEDS, align 8
  %RESULTS = getelementptr inbounds %struct.ProgramWord, ptr %6, i64 0, i32 2
  %10 = load i64, ptr %RESULTS, align 8
  %add = add i64 %10, %9
  %count = getelementptr inbounds %struct.Frame, ptr %frame, i64 0, i32 5, i32 1
  %11 = load i64, ptr %count, align 8
  %cmp6.not = icmp eq i64 %11, %9
  br i1 %cmp6.not, label %lor.lhs.false, label %if.then10

lor.lhs.false:
  %count8 = getelementptr inbounds %struct.Frame, ptr %frame, i64 0, i32 6, i32 1
  %12 = load i64, ptr %count8, align 8
  %cmp9.not = icmp eq i64 %12, %10
  br i1 %cmp9.not, label %if.end11, label %if.then10

if.then10:
  %MISMATCH = getelementptr inbounds %struct.ProgramWord, ptr %6, i64 0, i32 6
  %13 = load i64, ptr %MISMATCH, align 8
  %size.i = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i, i64 0, i32 0, i32 0
  store i64 28, ptr %size.i, align 8
  %extension.i = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i, i64 0, i32 0, i32 1
  store ptr null, ptr %extension.i, align 8
  %message.i = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i, i64 0, i32 1
  %14 = inttoptr i64 %13 to ptr
  store ptr %14, ptr %message.i, align 8
  %code1.i = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i, i64 0, i32 2
  store i32 13, ptr %code1.i, align 8
  %api.i = getelementptr inbounds %struct.Frame, ptr %frame, i64 0, i32 2
  %15 = load ptr, ptr %api.i, align 8
  %create_error.i = getelementptr inbounds %struct.Api, ptr %15, i64 0, i32 3
  %16 = load ptr, ptr %create_error.i, align 8
  %call.i = call ptr %16(ptr %arguments.i)
  br label %return

if.end11:
  %mul = shl i64 %add, 3
  %17 = alloca i8, i64 %mul, align 16
  %mul12 = shl i64 %9, 3
  %18 = alloca i8, i64 %mul12, align 16
  %COPIES = getelementptr inbounds %struct.ProgramWord, ptr %6, i64 0, i32 7
  %19 = load i64, ptr %COPIES, align 8
  %add13 = add i64 %19, 1
  %20 = alloca i8, i64 %add13, align 16
  %21 = alloca i8, i64 %mul, align 16
  %items16 = getelementptr inbounds %struct.Frame, ptr %frame, i64 0, i32 6, i32 3
  %22 = load ptr, ptr %items16, align 8
  %23 = load ptr, ptr %22, align 8
  %dtype.i = getelementptr inbounds %struct.Buffer, ptr %23, i64 0, i32 1
  %24 = load i32, ptr %dtype.i, align 8
  %conv.i = zext i32 %24 to i64
  %DTYPE.i = getelementptr %struct.Record, ptr %8, i64 %9, i32 0
  %25 = load i64, ptr %DTYPE.i, align 8
  %cmp.i = icmp eq i64 %25, %conv.i
  br i1 %cmp.i, label %extra.exit, label %if.then21

extra.exit:
  %rank.i = getelementptr inbounds %struct.Buffer, ptr %23, i64 0, i32 3
  %26 = load i64, ptr %rank.i, align 8
  %RANK.i = getelementptr %struct.Record, ptr %8, i64 %9, i32 1
  %27 = load i64, ptr %RANK.i, align 8
  %sub.i = sub i64 %26, %27
  %cmp20 = icmp slt i64 %sub.i, 0
  br i1 %cmp20, label %if.then21, label %if.end24

if.then21:
  %MISMATCH22 = getelementptr inbounds %struct.ProgramWord, ptr %6, i64 0, i32 6
  %28 = load i64, ptr %MISMATCH22, align 8
  %size.i271 = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i270, i64 0, i32 0, i32 0
  store i64 28, ptr %size.i271, align 8
  %extension.i272 = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i270, i64 0, i32 0, i32 1
  store ptr null, ptr %extension.i272, align 8
  %message.i273 = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i270, i64 0, i32 1
  %29 = inttoptr i64 %28 to ptr
  store ptr %29, ptr %message.i273, align 8
  %code1.i274 = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i270, i64 0, i32 2
  store i32 13, ptr %code1.i274, align 8
  %api.i275 = getelementptr inbounds %struct.Frame, ptr %frame, i64 0, i32 2
  %30 = load ptr, ptr %api.i275, align 8
  %create_error.i276 = getelementptr inbounds %struct.Api, ptr %30, i64 0, i32 3
  %31 = load ptr, ptr %create_error.i276, align 8
  %call.i277 = call ptr %31(ptr %arguments.i270)
  br label %return

if.end24:
  %cmp4.i.not = icmp eq i64 %sub.i, 0
  br i1 %cmp4.i.not, label %product.exit, label %for.body.lr.ph.i

for.body.lr.ph.i:
  %dims.i = getelementptr inbounds %struct.Buffer, ptr %23, i64 0, i32 4
  %32 = load ptr, ptr %dims.i, align 8
  br label %for.body.i

for.body.i:
  %i.06.i = phi i64 [ 0, %for.body.lr.ph.i ], [ %inc.i, %for.body.i ]
  %total.05.i = phi i64 [ 1, %for.body.lr.ph.i ], [ %mul.i, %for.body.i ]
  %arrayidx.i = getelementptr i64, ptr %32, i64 %i.06.i
  %33 = load i64, ptr %arrayidx.i, align 8
  %mul.i = mul i64 %33, %total.05.i
  %inc.i = add nuw nsw i64 %i.06.i, 1
  %exitcond.not.i = icmp eq i64 %inc.i, %sub.i
  br i1 %exitcond.not.i, label %product.exit, label %for.body.i

product.exit:
  %total.0.lcssa.i = phi i64 [ 1, %if.end24 ], [ %mul.i, %for.body.i ]
  %cmp26356 = icmp sgt i64 %add, 0
  br i1 %cmp26356, label %for.body.lr.ph, label %for.end

for.body.lr.ph:
  %items29 = getelementptr inbounds %struct.Frame, ptr %frame, i64 0, i32 5, i32 3
  %cmp39.not340 = icmp eq i64 %sub.i, -1
  %cmp4.i288 = icmp sgt i64 %sub.i, 0
  br label %for.body

for.body:
  %cmp26362 = phi i1 [ true, %for.body.lr.ph ], [ %cmp26, %for.inc ]
  %i.0357 = phi i64 [ 0, %for.body.lr.ph ], [ %inc, %for.inc ]
  %cmp27 = icmp slt i64 %i.0357, %9
  br i1 %cmp27, label %cond.true, label %cond.false

cond.true:
  %34 = load ptr, ptr %items29, align 8
  %arrayidx30 = getelementptr ptr, ptr %34, i64 %i.0357
  br label %cond.end

cond.false:
  %sub = sub i64 %i.0357, %9
  %arrayidx33 = getelementptr ptr, ptr %22, i64 %sub
  br label %cond.end

cond.end:
  %cond.in = phi ptr [ %arrayidx30, %cond.true ], [ %arrayidx33, %cond.false ]
  %cond = load ptr, ptr %cond.in, align 8
  %dtype.i278 = getelementptr inbounds %struct.Buffer, ptr %cond, i64 0, i32 1
  %35 = load i32, ptr %dtype.i278, align 8
  %conv.i279 = zext i32 %35 to i64
  %DTYPE.i280 = getelementptr %struct.Record, ptr %8, i64 %i.0357, i32 0
  %36 = load i64, ptr %DTYPE.i280, align 8
  %cmp.i281 = icmp eq i64 %36, %conv.i279
  br i1 %cmp.i281, label %extra.exit287, label %land.lhs.true38.thread

extra.exit287:
  %rank.i282 = getelementptr inbounds %struct.Buffer, ptr %cond, i64 0, i32 3
  %37 = load i64, ptr %rank.i282, align 8
  %RANK.i283 = getelementptr %struct.Record, ptr %8, i64 %i.0357, i32 1
  %38 = load i64, ptr %RANK.i283, align 8
  %sub.i284 = sub i64 %37, %38
  %cmp36 = icmp eq i64 %sub.i284, 0
  %39 = select i1 %cmp36, i1 %cmp27, i1 false
  br i1 %39, label %if.end46, label %land.lhs.true38

land.lhs.true38:
  %cmp39.not = icmp eq i64 %sub.i284, %sub.i
  br i1 %cmp39.not, label %lor.lhs.false40, label %if.then43

land.lhs.true38.thread:
  br i1 %cmp39.not340, label %product.exit299, label %if.then43

lor.lhs.false40:
  br i1 %cmp4.i288, label %for.body.lr.ph.i290, label %product.exit299

for.body.lr.ph.i290:
  %dims.i289 = getelementptr inbounds %struct.Buffer, ptr %cond, i64 0, i32 4
  %40 = load ptr, ptr %dims.i289, align 8
  br label %for.body.i298

for.body.i298:
  %i.06.i292 = phi i64 [ 0, %for.body.lr.ph.i290 ], [ %inc.i296, %for.body.i298 ]
  %total.05.i293 = phi i64 [ 1, %for.body.lr.ph.i290 ], [ %mul.i295, %for.body.i298 ]
  %arrayidx.i294 = getelementptr i64, ptr %40, i64 %i.06.i292
  %41 = load i64, ptr %arrayidx.i294, align 8
  %mul.i295 = mul i64 %41, %total.05.i293
  %inc.i296 = add nuw nsw i64 %i.06.i292, 1
  %exitcond.not.i297 = icmp eq i64 %inc.i296, %sub.i
  br i1 %exitcond.not.i297, label %product.exit299, label %for.body.i298

product.exit299:
  %total.0.lcssa.i291 = phi i64 [ 1, %lor.lhs.false40 ], [ 1, %land.lhs.true38.thread ], [ %mul.i295, %for.body.i298 ]
  %cmp42.not = icmp eq i64 %total.0.lcssa.i291, %total.0.lcssa.i
  br i1 %cmp42.not, label %product.exit299.if.end46_crit_edge, label %if.then43

product.exit299.if.end46_crit_edge:
  %RANK.i309.phi.trans.insert = getelementptr %struct.Record, ptr %8, i64 %i.0357, i32 1
  %.pre = load i64, ptr %RANK.i309.phi.trans.insert, align 8
  br label %if.end46

if.then43:
  %MISMATCH44 = getelementptr inbounds %struct.ProgramWord, ptr %6, i64 0, i32 6
  %42 = load i64, ptr %MISMATCH44, align 8
  %size.i301 = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i300, i64 0, i32 0, i32 0
  store i64 28, ptr %size.i301, align 8
  %extension.i302 = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i300, i64 0, i32 0, i32 1
  store ptr null, ptr %extension.i302, align 8
  %message.i303 = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i300, i64 0, i32 1
  %43 = inttoptr i64 %42 to ptr
  store ptr %43, ptr %message.i303, align 8
  %code1.i304 = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i300, i64 0, i32 2
  store i32 13, ptr %code1.i304, align 8
  %api.i305 = getelementptr inbounds %struct.Frame, ptr %frame, i64 0, i32 2
  %44 = load ptr, ptr %api.i305, align 8
  %create_error.i306 = getelementptr inbounds %struct.Api, ptr %44, i64 0, i32 3
  %45 = load ptr, ptr %create_error.i306, align 8
  %call.i307 = call ptr %45(ptr %arguments.i300)
  br label %cleanup69

if.end46:
  %46 = phi i64 [ %.pre, %product.exit299.if.end46_crit_edge ], [ %38, %extra.exit287 ]
  %47 = phi i1 [ false, %product.exit299.if.end46_crit_edge ], [ true, %extra.exit287 ]
  %cond.i286337 = phi i64 [ %sub.i, %product.exit299.if.end46_crit_edge ], [ 0, %extra.exit287 ]
  %data.i = getelementptr inbounds %struct.Buffer, ptr %cond, i64 0, i32 2
  %48 = load ptr, ptr %data.i, align 8
  %49 = ptrtoint ptr %48 to i64
  %MASK.i = getelementptr %struct.Record, ptr %8, i64 %i.0357, i32 4
  %50 = load i64, ptr %MASK.i, align 8
  %and.i = and i64 %50, %49
  %cmp.i308 = icmp eq i64 %and.i, 0
  %cmp117.i = icmp sgt i64 %46, 0
  br i1 %cmp117.i, label %for.body.lr.ph.i311, label %fits.exit

for.body.lr.ph.i311:
  %dims.i310 = getelementptr inbounds %struct.Buffer, ptr %cond, i64 0, i32 4
  %51 = load ptr, ptr %dims.i310, align 8
  %SHAPE.i = getelementptr %struct.Record, ptr %8, i64 %i.0357, i32 2
  %52 = load i64, ptr %SHAPE.i, align 8
  %53 = inttoptr i64 %52 to ptr
  br label %for.body.i315

for.body.i315:
  %i.019.i = phi i64 [ 0, %for.body.lr.ph.i311 ], [ %inc.i313, %for.body.i315 ]
  %so_far.0.in18.i = phi i1 [ %cmp.i308, %for.body.lr.ph.i311 ], [ %and516.i, %for.body.i315 ]
  %add.i = add i64 %i.019.i, %cond.i286337
  %arrayidx.i312 = getelementptr i64, ptr %51, i64 %add.i
  %54 = load i64, ptr %arrayidx.i312, align 8
  %arrayidx2.i = getelementptr i64, ptr %53, i64 %i.019.i
  %55 = load i64, ptr %arrayidx2.i, align 8
  %cmp3.i = icmp eq i64 %54, %55
  %and516.i = and i1 %so_far.0.in18.i, %cmp3.i
  %inc.i313 = add nuw nsw i64 %i.019.i, 1
  %exitcond.not.i314 = icmp eq i64 %inc.i313, %46
  br i1 %exitcond.not.i314, label %fits.exit, label %for.body.i315

fits.exit:
  %so_far.0.in.lcssa.i = phi i1 [ %cmp.i308, %if.end46 ], [ %and516.i, %for.body.i315 ]
  br i1 %so_far.0.in.lcssa.i, label %if.end52, label %if.then49

if.then49:
  %MISMATCH50 = getelementptr inbounds %struct.ProgramWord, ptr %6, i64 0, i32 6
  %56 = load i64, ptr %MISMATCH50, align 8
  %size.i317 = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i316, i64 0, i32 0, i32 0
  store i64 28, ptr %size.i317, align 8
  %extension.i318 = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i316, i64 0, i32 0, i32 1
  store ptr null, ptr %extension.i318, align 8
  %message.i319 = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i316, i64 0, i32 1
  %57 = inttoptr i64 %56 to ptr
  store ptr %57, ptr %message.i319, align 8
  %code1.i320 = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i316, i64 0, i32 2
  store i32 13, ptr %code1.i320, align 8
  %api.i321 = getelementptr inbounds %struct.Frame, ptr %frame, i64 0, i32 2
  %58 = load ptr, ptr %api.i321, align 8
  %create_error.i322 = getelementptr inbounds %struct.Api, ptr %58, i64 0, i32 3
  %59 = load ptr, ptr %create_error.i322, align 8
  %call.i323 = call ptr %59(ptr %arguments.i316)
  br label %cleanup69

if.end52:
  %cmp53 = icmp eq ptr %48, null
  %spec.select = select i1 %cmp53, ptr getelementptr inbounds ([16 x i8], ptr @nowhere, i64 0, i64 0), ptr %48
  %arrayidx59 = getelementptr ptr, ptr %17, i64 %i.0357
  store ptr %spec.select, ptr %arrayidx59, align 8
  br i1 %47, label %for.inc, label %cond.false62

cond.false62:
  %NBYTES = getelementptr %struct.Record, ptr %8, i64 %i.0357, i32 3
  %60 = load i64, ptr %NBYTES, align 8
  br label %for.inc

for.inc:
  %cond65 = phi i64 [ %60, %cond.false62 ], [ 0, %if.end52 ]
  %arrayidx66 = getelementptr i64, ptr %21, i64 %i.0357
  store i64 %cond65, ptr %arrayidx66, align 8
  %inc = add nuw nsw i64 %i.0357, 1
  %cmp26 = icmp slt i64 %inc, %add
  %exitcond.not = icmp eq i64 %inc, %add
  br i1 %exitcond.not, label %for.end, label %for.body

cleanup69:
  %retval.1.ph = phi ptr [ %call.i307, %if.then43 ], [ %call.i323, %if.then49 ]
  br i1 %cmp26362, label %return, label %for.end

for.end:
  %ENTRY = getelementptr inbounds %struct.ProgramWord, ptr %6, i64 0, i32 0
  %61 = load i64, ptr %ENTRY, align 8
  %62 = inttoptr i64 %61 to ptr
  %cmp74369 = icmp sgt i64 %total.0.lcssa.i, 0
  br i1 %cmp74369, label %for.cond78.preheader.lr.ph, label %return

for.cond78.preheader.lr.ph:
  %cmp79363 = icmp sgt i64 %9, 0
  %add.ptr107 = getelementptr ptr, ptr %17, i64 %9
  br label %for.cond78.preheader

for.cond73:
  %inc149 = add nuw nsw i64 %call72.0370, 1
  %exitcond378.not = icmp eq i64 %inc149, %total.0.lcssa.i
  br i1 %exitcond378.not, label %return, label %for.cond78.preheader

for.cond78.preheader:
  %call72.0370 = phi i64 [ 0, %for.cond78.preheader.lr.ph ], [ %inc149, %for.cond73 ]
  br i1 %cmp79363, label %for.body81, label %for.cond.cleanup80

for.cond.cleanup80:
  %call108 = call i32 %62(ptr %18, ptr %add.ptr107, ptr null)
  %tobool109.not = icmp eq i32 %call108, 0
  br i1 %tobool109.not, label %for.cond132.preheader, label %if.then110

for.cond132.preheader:
  br i1 %cmp26356, label %for.body136, label %for.cond73

for.body81:
  %i77.0365 = phi i64 [ %inc104, %cleanup100 ], [ 0, %for.cond78.preheader ]
  %copy.0364 = phi ptr [ %copy.1, %cleanup100 ], [ %20, %for.cond78.preheader ]
  %arrayidx83 = getelementptr ptr, ptr %17, i64 %i77.0365
  %63 = load ptr, ptr %arrayidx83, align 8
  %arrayidx84 = getelementptr ptr, ptr %18, i64 %i77.0365
  store ptr %63, ptr %arrayidx84, align 8
  %RESULT = getelementptr %struct.Record, ptr %8, i64 %i77.0365, i32 5
  %64 = load i64, ptr %RESULT, align 8
  %cmp85 = icmp slt i64 %64, 0
  br i1 %cmp85, label %cleanup100, label %lor.lhs.false86

lor.lhs.false86:
  %add89 = add i64 %64, %9
  %arrayidx90 = getelementptr ptr, ptr %17, i64 %add89
  %65 = load ptr, ptr %arrayidx90, align 8
  %cmp91.not = icmp eq ptr %63, %65
  br i1 %cmp91.not, label %if.end93, label %cleanup100

if.end93:
  %NBYTES95 = getelementptr %struct.Record, ptr %8, i64 %i77.0365, i32 3
  %66 = load i64, ptr %NBYTES95, align 8
  call void @llvm.memcpy.p0.p0.i64(ptr %copy.0364, ptr %63, i64 %66, i1 false)
  store ptr %copy.0364, ptr %arrayidx84, align 8
  %67 = load i64, ptr %NBYTES95, align 8
  %sub99 = add i64 %67, 15
  %and = and i64 %sub99, -16
  %add.ptr = getelementptr i8, ptr %copy.0364, i64 %and
  br label %cleanup100

cleanup100:
  %copy.1 = phi ptr [ %add.ptr, %if.end93 ], [ %copy.0364, %lor.lhs.false86 ], [ %copy.0364, %for.body81 ]
  %inc104 = add nuw nsw i64 %i77.0365, 1
  %exitcond376.not = icmp eq i64 %inc104, %9
  br i1 %exitcond376.not, label %for.cond.cleanup80, label %for.body81

if.then110:
  %cmp111 = icmp sgt i32 %call108, 0
  br i1 %cmp111, label %land.end115, label %land.end115.thread

land.end115.thread:
  %TEXTS348 = getelementptr inbounds %struct.ProgramWord, ptr %6, i64 0, i32 5
  %68 = load i64, ptr %TEXTS348, align 8
  %69 = inttoptr i64 %68 to ptr
  br label %cleanup144.thread

land.end115:
  %conv352 = zext i32 %call108 to i64
  %CHECKS = getelementptr inbounds %struct.ProgramWord, ptr %6, i64 0, i32 4
  %70 = load i64, ptr %CHECKS, align 8
  %cmp113.not = icmp slt i64 %70, %conv352
  %TEXTS = getelementptr inbounds %struct.ProgramWord, ptr %6, i64 0, i32 5
  %71 = load i64, ptr %TEXTS, align 8
  %72 = inttoptr i64 %71 to ptr
  %spec.select383.idx = select i1 %cmp113.not, i64 0, i64 %conv352
  %spec.select383 = getelementptr i64, ptr %72, i64 %spec.select383.idx
  %spec.select384 = select i1 %cmp113.not, i32 8, i32 9
  br label %cleanup144.thread

cleanup144.thread:
  %.in = phi ptr [ %69, %land.end115.thread ], [ %spec.select383, %land.end115 ]
  %73 = phi i32 [ 8, %land.end115.thread ], [ %spec.select384, %land.end115 ]
  %74 = load i64, ptr %.in, align 8
  %size.i325 = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i324, i64 0, i32 0, i32 0
  store i64 28, ptr %size.i325, align 8
  %extension.i326 = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i324, i64 0, i32 0, i32 1
  store ptr null, ptr %extension.i326, align 8
  %message.i327 = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i324, i64 0, i32 1
  %75 = inttoptr i64 %74 to ptr
  store ptr %75, ptr %message.i327, align 8
  %code1.i328 = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i324, i64 0, i32 2
  store i32 %73, ptr %code1.i328, align 8
  %api.i329 = getelementptr inbounds %struct.Frame, ptr %frame, i64 0, i32 2
  %76 = load ptr, ptr %api.i329, align 8
  %create_error.i330 = getelementptr inbounds %struct.Api, ptr %76, i64 0, i32 3
  %77 = load ptr, ptr %create_error.i330, align 8
  %call.i331 = call ptr %77(ptr %arguments.i324)
  br label %return

for.body136:
  %i131.0368 = phi i64 [ %inc141, %for.body136 ], [ 0, %for.cond132.preheader ]
  %arrayidx137 = getelementptr i64, ptr %21, i64 %i131.0368
  %78 = load i64, ptr %arrayidx137, align 8
  %arrayidx138 = getelementptr ptr, ptr %17, i64 %i131.0368
  %79 = load ptr, ptr %arrayidx138, align 8
  %add.ptr139 = getelementptr i8, ptr %79, i64 %78
  store ptr %add.ptr139, ptr %arrayidx138, align 8
  %inc141 = add nuw nsw i64 %i131.0368, 1
  %exitcond377.not = icmp eq i64 %inc141, %add
  br i1 %exitcond377.not, label %for.cond73, label %for.body136

return:
  %retval.10 = phi ptr [ null, %if.then ], [ %call.i, %if.then10 ], [ %call.i277, %if.then21 ], [ %retval.1.ph, %cleanup69 ], [ %call.i331, %cleanup144.thread ], [ null, %for.end ], [ null, %for.cond73 ]
  ret ptr %retval.10
}

declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
