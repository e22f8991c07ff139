; Made of xla.c by make parts, from 06f06ef7c483f81f. Do not edit.

%struct.ErrorArguments = type { %struct.Head, ptr, i32 }
%struct.Head = type { i64, ptr }
%struct.Frame = type { i64, ptr, ptr, ptr, i32, %struct.anon, %struct.anon, %struct.anon.0 }
%struct.anon = type { %struct.Head, i64, ptr, ptr }
%struct.anon.0 = type { %struct.Head, i64, ptr, ptr, ptr }
%struct.Extension = type { i64, i32, ptr, ptr }
%struct.Metadata = type { i64, %struct.Version, i32 }
%struct.Version = type { %struct.Head, i32, i32 }
%struct.anon.1 = type { i64, ptr }
%struct.ProgramWord = type { i64, i64, i64, i64, i64, i64, i64 }
%struct.Api = type { %struct.Head, %struct.Version, ptr, ptr }
%struct.Buffer = type { %struct.Head, i32, ptr, i64, ptr }
%struct.Record = type { i64, i64, i64, i64, i64 }

@nowhere = internal global [16 x i8] zeroinitializer, align 16

define ptr @handler(ptr %frame) {
entry:
  %arguments.i265 = alloca %struct.ErrorArguments, align 8
  %arguments.i257 = alloca %struct.ErrorArguments, align 8
  %arguments.i241 = alloca %struct.ErrorArguments, align 8
  %arguments.i211 = alloca %struct.ErrorArguments, align 8
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
  %18 = alloca i8, i64 %mul, align 16
  %items14 = getelementptr inbounds %struct.Frame, ptr %frame, i64 0, i32 6, i32 3
  %19 = load ptr, ptr %items14, align 8
  %20 = load ptr, ptr %19, align 8
  %dtype.i = getelementptr inbounds %struct.Buffer, ptr %20, i64 0, i32 1
  %21 = load i32, ptr %dtype.i, align 8
  %conv.i = zext i32 %21 to i64
  %DTYPE.i = getelementptr %struct.Record, ptr %8, i64 %9, i32 0
  %22 = load i64, ptr %DTYPE.i, align 8
  %cmp.i = icmp eq i64 %22, %conv.i
  br i1 %cmp.i, label %extra.exit, label %if.then19

extra.exit:
  %rank.i = getelementptr inbounds %struct.Buffer, ptr %20, i64 0, i32 3
  %23 = load i64, ptr %rank.i, align 8
  %RANK.i = getelementptr %struct.Record, ptr %8, i64 %9, i32 1
  %24 = load i64, ptr %RANK.i, align 8
  %sub.i = sub i64 %23, %24
  %cmp18 = icmp slt i64 %sub.i, 0
  br i1 %cmp18, label %if.then19, label %if.end22

if.then19:
  %MISMATCH20 = getelementptr inbounds %struct.ProgramWord, ptr %6, i64 0, i32 6
  %25 = load i64, ptr %MISMATCH20, align 8
  %size.i212 = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i211, i64 0, i32 0, i32 0
  store i64 28, ptr %size.i212, align 8
  %extension.i213 = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i211, i64 0, i32 0, i32 1
  store ptr null, ptr %extension.i213, align 8
  %message.i214 = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i211, i64 0, i32 1
  %26 = inttoptr i64 %25 to ptr
  store ptr %26, ptr %message.i214, align 8
  %code1.i215 = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i211, i64 0, i32 2
  store i32 13, ptr %code1.i215, align 8
  %api.i216 = getelementptr inbounds %struct.Frame, ptr %frame, i64 0, i32 2
  %27 = load ptr, ptr %api.i216, align 8
  %create_error.i217 = getelementptr inbounds %struct.Api, ptr %27, i64 0, i32 3
  %28 = load ptr, ptr %create_error.i217, align 8
  %call.i218 = call ptr %28(ptr %arguments.i211)
  br label %return

if.end22:
  %cmp4.i.not = icmp eq i64 %sub.i, 0
  br i1 %cmp4.i.not, label %product.exit, label %for.body.lr.ph.i

for.body.lr.ph.i:
  %dims.i = getelementptr inbounds %struct.Buffer, ptr %20, i64 0, i32 4
  %29 = load ptr, ptr %dims.i, align 8
  br label %for.body.i

for.body.i:
  %i.06.i = phi i64 [ 0, %for.body.lr.ph.i ], [ %inc.i, %for.body.i ]
  %total.05.i = phi i64 [ 1, %for.body.lr.ph.i ], [ %mul.i, %for.body.i ]
  %arrayidx.i = getelementptr i64, ptr %29, i64 %i.06.i
  %30 = load i64, ptr %arrayidx.i, align 8
  %mul.i = mul i64 %30, %total.05.i
  %inc.i = add nuw nsw i64 %i.06.i, 1
  %exitcond.not.i = icmp eq i64 %inc.i, %sub.i
  br i1 %exitcond.not.i, label %product.exit, label %for.body.i

product.exit:
  %total.0.lcssa.i = phi i64 [ 1, %if.end22 ], [ %mul.i, %for.body.i ]
  %cmp24297 = icmp sgt i64 %add, 0
  br i1 %cmp24297, label %for.body.lr.ph, label %for.end

for.body.lr.ph:
  %items27 = getelementptr inbounds %struct.Frame, ptr %frame, i64 0, i32 5, i32 3
  %cmp37.not281 = icmp eq i64 %sub.i, -1
  %cmp4.i229 = icmp sgt i64 %sub.i, 0
  br label %for.body

for.body:
  %cmp24303 = phi i1 [ true, %for.body.lr.ph ], [ %cmp24, %for.inc ]
  %i.0298 = phi i64 [ 0, %for.body.lr.ph ], [ %inc, %for.inc ]
  %cmp25 = icmp slt i64 %i.0298, %9
  br i1 %cmp25, label %cond.true, label %cond.false

cond.true:
  %31 = load ptr, ptr %items27, align 8
  %arrayidx28 = getelementptr ptr, ptr %31, i64 %i.0298
  br label %cond.end

cond.false:
  %sub = sub i64 %i.0298, %9
  %arrayidx31 = getelementptr ptr, ptr %19, i64 %sub
  br label %cond.end

cond.end:
  %cond.in = phi ptr [ %arrayidx28, %cond.true ], [ %arrayidx31, %cond.false ]
  %cond = load ptr, ptr %cond.in, align 8
  %dtype.i219 = getelementptr inbounds %struct.Buffer, ptr %cond, i64 0, i32 1
  %32 = load i32, ptr %dtype.i219, align 8
  %conv.i220 = zext i32 %32 to i64
  %DTYPE.i221 = getelementptr %struct.Record, ptr %8, i64 %i.0298, i32 0
  %33 = load i64, ptr %DTYPE.i221, align 8
  %cmp.i222 = icmp eq i64 %33, %conv.i220
  br i1 %cmp.i222, label %extra.exit228, label %land.lhs.true36.thread

extra.exit228:
  %rank.i223 = getelementptr inbounds %struct.Buffer, ptr %cond, i64 0, i32 3
  %34 = load i64, ptr %rank.i223, align 8
  %RANK.i224 = getelementptr %struct.Record, ptr %8, i64 %i.0298, i32 1
  %35 = load i64, ptr %RANK.i224, align 8
  %sub.i225 = sub i64 %34, %35
  %cmp34 = icmp eq i64 %sub.i225, 0
  %36 = select i1 %cmp34, i1 %cmp25, i1 false
  br i1 %36, label %if.end44, label %land.lhs.true36

land.lhs.true36:
  %cmp37.not = icmp eq i64 %sub.i225, %sub.i
  br i1 %cmp37.not, label %lor.lhs.false38, label %if.then41

land.lhs.true36.thread:
  br i1 %cmp37.not281, label %product.exit240, label %if.then41

lor.lhs.false38:
  br i1 %cmp4.i229, label %for.body.lr.ph.i231, label %product.exit240

for.body.lr.ph.i231:
  %dims.i230 = getelementptr inbounds %struct.Buffer, ptr %cond, i64 0, i32 4
  %37 = load ptr, ptr %dims.i230, align 8
  br label %for.body.i239

for.body.i239:
  %i.06.i233 = phi i64 [ 0, %for.body.lr.ph.i231 ], [ %inc.i237, %for.body.i239 ]
  %total.05.i234 = phi i64 [ 1, %for.body.lr.ph.i231 ], [ %mul.i236, %for.body.i239 ]
  %arrayidx.i235 = getelementptr i64, ptr %37, i64 %i.06.i233
  %38 = load i64, ptr %arrayidx.i235, align 8
  %mul.i236 = mul i64 %38, %total.05.i234
  %inc.i237 = add nuw nsw i64 %i.06.i233, 1
  %exitcond.not.i238 = icmp eq i64 %inc.i237, %sub.i
  br i1 %exitcond.not.i238, label %product.exit240, label %for.body.i239

product.exit240:
  %total.0.lcssa.i232 = phi i64 [ 1, %lor.lhs.false38 ], [ 1, %land.lhs.true36.thread ], [ %mul.i236, %for.body.i239 ]
  %cmp40.not = icmp eq i64 %total.0.lcssa.i232, %total.0.lcssa.i
  br i1 %cmp40.not, label %product.exit240.if.end44_crit_edge, label %if.then41

product.exit240.if.end44_crit_edge:
  %RANK.i250.phi.trans.insert = getelementptr %struct.Record, ptr %8, i64 %i.0298, i32 1
  %.pre = load i64, ptr %RANK.i250.phi.trans.insert, align 8
  br label %if.end44

if.then41:
  %MISMATCH42 = getelementptr inbounds %struct.ProgramWord, ptr %6, i64 0, i32 6
  %39 = load i64, ptr %MISMATCH42, align 8
  %size.i242 = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i241, i64 0, i32 0, i32 0
  store i64 28, ptr %size.i242, align 8
  %extension.i243 = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i241, i64 0, i32 0, i32 1
  store ptr null, ptr %extension.i243, align 8
  %message.i244 = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i241, i64 0, i32 1
  %40 = inttoptr i64 %39 to ptr
  store ptr %40, ptr %message.i244, align 8
  %code1.i245 = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i241, i64 0, i32 2
  store i32 13, ptr %code1.i245, align 8
  %api.i246 = getelementptr inbounds %struct.Frame, ptr %frame, i64 0, i32 2
  %41 = load ptr, ptr %api.i246, align 8
  %create_error.i247 = getelementptr inbounds %struct.Api, ptr %41, i64 0, i32 3
  %42 = load ptr, ptr %create_error.i247, align 8
  %call.i248 = call ptr %42(ptr %arguments.i241)
  br label %cleanup67

if.end44:
  %43 = phi i64 [ %.pre, %product.exit240.if.end44_crit_edge ], [ %35, %extra.exit228 ]
  %44 = phi i1 [ false, %product.exit240.if.end44_crit_edge ], [ true, %extra.exit228 ]
  %cond.i227278 = phi i64 [ %sub.i, %product.exit240.if.end44_crit_edge ], [ 0, %extra.exit228 ]
  %data.i = getelementptr inbounds %struct.Buffer, ptr %cond, i64 0, i32 2
  %45 = load ptr, ptr %data.i, align 8
  %46 = ptrtoint ptr %45 to i64
  %MASK.i = getelementptr %struct.Record, ptr %8, i64 %i.0298, i32 4
  %47 = load i64, ptr %MASK.i, align 8
  %and.i = and i64 %47, %46
  %cmp.i249 = icmp eq i64 %and.i, 0
  %cmp117.i = icmp sgt i64 %43, 0
  br i1 %cmp117.i, label %for.body.lr.ph.i252, label %fits.exit

for.body.lr.ph.i252:
  %dims.i251 = getelementptr inbounds %struct.Buffer, ptr %cond, i64 0, i32 4
  %48 = load ptr, ptr %dims.i251, align 8
  %SHAPE.i = getelementptr %struct.Record, ptr %8, i64 %i.0298, i32 2
  %49 = load i64, ptr %SHAPE.i, align 8
  %50 = inttoptr i64 %49 to ptr
  br label %for.body.i256

for.body.i256:
  %i.019.i = phi i64 [ 0, %for.body.lr.ph.i252 ], [ %inc.i254, %for.body.i256 ]
  %so_far.0.in18.i = phi i1 [ %cmp.i249, %for.body.lr.ph.i252 ], [ %and516.i, %for.body.i256 ]
  %add.i = add i64 %i.019.i, %cond.i227278
  %arrayidx.i253 = getelementptr i64, ptr %48, i64 %add.i
  %51 = load i64, ptr %arrayidx.i253, align 8
  %arrayidx2.i = getelementptr i64, ptr %50, i64 %i.019.i
  %52 = load i64, ptr %arrayidx2.i, align 8
  %cmp3.i = icmp eq i64 %51, %52
  %and516.i = and i1 %so_far.0.in18.i, %cmp3.i
  %inc.i254 = add nuw nsw i64 %i.019.i, 1
  %exitcond.not.i255 = icmp eq i64 %inc.i254, %43
  br i1 %exitcond.not.i255, label %fits.exit, label %for.body.i256

fits.exit:
  %so_far.0.in.lcssa.i = phi i1 [ %cmp.i249, %if.end44 ], [ %and516.i, %for.body.i256 ]
  br i1 %so_far.0.in.lcssa.i, label %if.end50, label %if.then47

if.then47:
  %MISMATCH48 = getelementptr inbounds %struct.ProgramWord, ptr %6, i64 0, i32 6
  %53 = load i64, ptr %MISMATCH48, align 8
  %size.i258 = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i257, i64 0, i32 0, i32 0
  store i64 28, ptr %size.i258, align 8
  %extension.i259 = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i257, i64 0, i32 0, i32 1
  store ptr null, ptr %extension.i259, align 8
  %message.i260 = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i257, i64 0, i32 1
  %54 = inttoptr i64 %53 to ptr
  store ptr %54, ptr %message.i260, align 8
  %code1.i261 = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i257, i64 0, i32 2
  store i32 13, ptr %code1.i261, align 8
  %api.i262 = getelementptr inbounds %struct.Frame, ptr %frame, i64 0, i32 2
  %55 = load ptr, ptr %api.i262, align 8
  %create_error.i263 = getelementptr inbounds %struct.Api, ptr %55, i64 0, i32 3
  %56 = load ptr, ptr %create_error.i263, align 8
  %call.i264 = call ptr %56(ptr %arguments.i257)
  br label %cleanup67

if.end50:
  %cmp51 = icmp eq ptr %45, null
  %spec.select = select i1 %cmp51, ptr getelementptr inbounds ([16 x i8], ptr @nowhere, i64 0, i64 0), ptr %45
  %arrayidx57 = getelementptr ptr, ptr %17, i64 %i.0298
  store ptr %spec.select, ptr %arrayidx57, align 8
  br i1 %44, label %for.inc, label %cond.false60

cond.false60:
  %NBYTES = getelementptr %struct.Record, ptr %8, i64 %i.0298, i32 3
  %57 = load i64, ptr %NBYTES, align 8
  br label %for.inc

for.inc:
  %cond63 = phi i64 [ %57, %cond.false60 ], [ 0, %if.end50 ]
  %arrayidx64 = getelementptr i64, ptr %18, i64 %i.0298
  store i64 %cond63, ptr %arrayidx64, align 8
  %inc = add nuw nsw i64 %i.0298, 1
  %cmp24 = icmp slt i64 %inc, %add
  %exitcond.not = icmp eq i64 %inc, %add
  br i1 %exitcond.not, label %for.end, label %for.body

cleanup67:
  %retval.1.ph = phi ptr [ %call.i248, %if.then41 ], [ %call.i264, %if.then47 ]
  br i1 %cmp24303, label %return, label %for.end

for.end:
  %ENTRY = getelementptr inbounds %struct.ProgramWord, ptr %6, i64 0, i32 0
  %58 = load i64, ptr %ENTRY, align 8
  %59 = inttoptr i64 %58 to ptr
  %cmp72306 = icmp sgt i64 %total.0.lcssa.i, 0
  br i1 %cmp72306, label %for.body74.lr.ph, label %return

for.body74.lr.ph:
  %add.ptr = getelementptr ptr, ptr %17, i64 %9
  br label %for.body74

for.cond71:
  %inc115 = add nuw nsw i64 %call70.0307, 1
  %exitcond314.not = icmp eq i64 %inc115, %total.0.lcssa.i
  br i1 %exitcond314.not, label %return, label %for.body74

for.body74:
  %call70.0307 = phi i64 [ 0, %for.body74.lr.ph ], [ %inc115, %for.cond71 ]
  %call75 = call i32 %59(ptr %17, ptr %add.ptr, ptr null)
  %tobool76.not = icmp eq i32 %call75, 0
  br i1 %tobool76.not, label %for.cond99.preheader, label %if.then77

for.cond99.preheader:
  br i1 %cmp24297, label %for.body103, label %for.cond71

if.then77:
  %cmp78 = icmp sgt i32 %call75, 0
  br i1 %cmp78, label %land.end82, label %land.end82.thread

land.end82.thread:
  %TEXTS289 = getelementptr inbounds %struct.ProgramWord, ptr %6, i64 0, i32 5
  %60 = load i64, ptr %TEXTS289, align 8
  %61 = inttoptr i64 %60 to ptr
  br label %cleanup111.thread

land.end82:
  %conv293 = zext i32 %call75 to i64
  %CHECKS = getelementptr inbounds %struct.ProgramWord, ptr %6, i64 0, i32 4
  %62 = load i64, ptr %CHECKS, align 8
  %cmp80.not = icmp slt i64 %62, %conv293
  %TEXTS = getelementptr inbounds %struct.ProgramWord, ptr %6, i64 0, i32 5
  %63 = load i64, ptr %TEXTS, align 8
  %64 = inttoptr i64 %63 to ptr
  %spec.select319.idx = select i1 %cmp80.not, i64 0, i64 %conv293
  %spec.select319 = getelementptr i64, ptr %64, i64 %spec.select319.idx
  %spec.select320 = select i1 %cmp80.not, i32 8, i32 9
  br label %cleanup111.thread

cleanup111.thread:
  %.in = phi ptr [ %61, %land.end82.thread ], [ %spec.select319, %land.end82 ]
  %65 = phi i32 [ 8, %land.end82.thread ], [ %spec.select320, %land.end82 ]
  %66 = load i64, ptr %.in, align 8
  %size.i266 = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i265, i64 0, i32 0, i32 0
  store i64 28, ptr %size.i266, align 8
  %extension.i267 = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i265, i64 0, i32 0, i32 1
  store ptr null, ptr %extension.i267, align 8
  %message.i268 = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i265, i64 0, i32 1
  %67 = inttoptr i64 %66 to ptr
  store ptr %67, ptr %message.i268, align 8
  %code1.i269 = getelementptr inbounds %struct.ErrorArguments, ptr %arguments.i265, i64 0, i32 2
  store i32 %65, ptr %code1.i269, align 8
  %api.i270 = getelementptr inbounds %struct.Frame, ptr %frame, i64 0, i32 2
  %68 = load ptr, ptr %api.i270, align 8
  %create_error.i271 = getelementptr inbounds %struct.Api, ptr %68, i64 0, i32 3
  %69 = load ptr, ptr %create_error.i271, align 8
  %call.i272 = call ptr %69(ptr %arguments.i265)
  br label %return

for.body103:
  %i98.0305 = phi i64 [ %inc108, %for.body103 ], [ 0, %for.cond99.preheader ]
  %arrayidx104 = getelementptr i64, ptr %18, i64 %i98.0305
  %70 = load i64, ptr %arrayidx104, align 8
  %arrayidx105 = getelementptr ptr, ptr %17, i64 %i98.0305
  %71 = load ptr, ptr %arrayidx105, align 8
  %add.ptr106 = getelementptr i8, ptr %71, i64 %70
  store ptr %add.ptr106, ptr %arrayidx105, align 8
  %inc108 = add nuw nsw i64 %i98.0305, 1
  %exitcond313.not = icmp eq i64 %inc108, %add
  br i1 %exitcond313.not, label %for.cond71, label %for.body103

return:
  %retval.10 = phi ptr [ null, %if.then ], [ %call.i, %if.then10 ], [ %call.i218, %if.then19 ], [ %retval.1.ph, %cleanup67 ], [ %call.i272, %cleanup111.thread ], [ null, %for.end ], [ null, %for.cond71 ]
  ret ptr %retval.10
}
