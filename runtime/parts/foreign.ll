; Made of foreign.c by make parts, from 2c3146f0c5d4eba6. Do not edit.

%struct.Tensor = type { ptr, i32, i32, i32, i32, ptr, ptr, i64 }
%struct.Field = type { i64, i64, i64, i64, i64, i64, i64 }
%struct.ForeignWord = type { i64, i64, i64, i64, i64 }
%struct.ProducerWord = type { i64, i64, i64, i64, i64 }

define hidden ptr @data_of(ptr %object, ptr %record, ptr %number, ptr %known, i32 %writes) {
entry:
  %overflow.i = alloca i32, align 4
  %object.addr = alloca ptr, align 8
  %tensor = alloca %struct.Tensor, align 8
  store ptr %object, ptr %object.addr, align 8
  %add.ptr = getelementptr i8, ptr %object, i64 $TYPE
  %0 = load ptr, ptr %add.ptr, align 8
  %ELEMENT = getelementptr inbounds %struct.Field, ptr %record, i64 0, i32 6
  %1 = load i64, ptr %ELEMENT, align 8
  %FLOAT = getelementptr inbounds %struct.ForeignWord, ptr %known, i64 0, i32 0
  %2 = load i64, ptr %FLOAT, align 8
  %3 = inttoptr i64 %2 to ptr
  %cmp = icmp eq ptr %0, %3
  br i1 %cmp, label %land.lhs.true.thread, label %lor.lhs.false

lor.lhs.false:
  %FLOAT64 = getelementptr inbounds %struct.ForeignWord, ptr %known, i64 0, i32 1
  %4 = load i64, ptr %FLOAT64, align 8
  %5 = inttoptr i64 %4 to ptr
  %cmp1 = icmp eq ptr %0, %5
  br i1 %cmp1, label %land.lhs.true, label %lor.rhs

lor.rhs:
  %INT = getelementptr inbounds %struct.ForeignWord, ptr %known, i64 0, i32 2
  %6 = load i64, ptr %INT, align 8
  %7 = inttoptr i64 %6 to ptr
  %cmp2 = icmp eq ptr %0, %7
  br i1 %cmp2, label %land.lhs.true.thread98, label %if.end

land.lhs.true:
  %NDIM = getelementptr inbounds %struct.Field, ptr %record, i64 0, i32 2
  %8 = load i64, ptr %NDIM, align 8
  %tobool3 = icmp ne i64 %8, 0
  %tobool5 = icmp ne i32 %writes, 0
  %or.cond = or i1 %tobool5, %tobool3
  br i1 %or.cond, label %if.end, label %if.then.i

land.lhs.true.thread98:
  %NDIM99 = getelementptr inbounds %struct.Field, ptr %record, i64 0, i32 2
  %9 = load i64, ptr %NDIM99, align 8
  %tobool3100 = icmp ne i64 %9, 0
  %tobool5101 = icmp ne i32 %writes, 0
  %or.cond102 = or i1 %tobool5101, %tobool3100
  br i1 %or.cond102, label %if.end, label %if.end9.i

land.lhs.true.thread:
  %NDIM86 = getelementptr inbounds %struct.Field, ptr %record, i64 0, i32 2
  %10 = load i64, ptr %NDIM86, align 8
  %tobool387 = icmp ne i64 %10, 0
  %tobool588 = icmp ne i32 %writes, 0
  %or.cond89 = or i1 %tobool588, %tobool387
  br i1 %or.cond89, label %if.end, label %if.then.i

if.then.i:
  %add.ptr.i = getelementptr i8, ptr %object, i64 $DATA
  %11 = load double, ptr %add.ptr.i, align 8
  switch i64 %1, label %cleanup44 [
    i64 81922, label %if.then3.i
    i64 73730, label %if.end6.i
  ]

if.then3.i:
  store double %11, ptr %number, align 8
  br label %cleanup44

if.end6.i:
  %conv.i = fptrunc double %11 to float
  store float %conv.i, ptr %number, align 4
  %12 = tail call float @llvm.fabs.f32(float %conv.i)
  %cmpinf.i = fcmp oeq float %12, 0x7FF0000000000000
  %13 = tail call double @llvm.fabs.f64(double %11)
  %cmpinf7.i = fcmp oeq double %13, 0x7FF0000000000000
  %phi.sel.i = select i1 %cmpinf7.i, ptr %number, ptr null
  %14 = select i1 %cmpinf.i, ptr %phi.sel.i, ptr %number
  br label %cleanup44

if.end9.i:
  %call.i = call i64 @PyLong_AsLongLongAndOverflow(ptr %object, ptr %overflow.i)
  %15 = load i32, ptr %overflow.i, align 4
  %tobool11.not.i = icmp eq i32 %15, 0
  br i1 %tobool11.not.i, label %if.end13.i, label %cleanup28.i

if.end13.i:
  switch i64 %1, label %cleanup28.i [
    i64 81922, label %sw.bb.i
    i64 73730, label %sw.bb15.i
    i64 81920, label %sw.bb17.i
    i64 73728, label %sw.bb18.i
  ]

sw.bb.i:
  %conv14.i = sitofp i64 %call.i to double
  store double %conv14.i, ptr %number, align 8
  br label %cleanup28.i

sw.bb15.i:
  %conv16.i = sitofp i64 %call.i to float
  store float %conv16.i, ptr %number, align 4
  br label %cleanup28.i

sw.bb17.i:
  store i64 %call.i, ptr %number, align 8
  br label %cleanup28.i

sw.bb18.i:
  %conv19.i = trunc i64 %call.i to i32
  store i32 %conv19.i, ptr %number, align 4
  %16 = add i64 %call.i, 2147483648
  %17 = icmp ult i64 %16, 4294967296
  %cond27.i = select i1 %17, ptr %number, ptr null
  br label %cleanup28.i

cleanup28.i:
  %retval.1.i = phi ptr [ %cond27.i, %sw.bb18.i ], [ %number, %sw.bb17.i ], [ %number, %sw.bb15.i ], [ %number, %sw.bb.i ], [ null, %if.end9.i ], [ null, %if.end13.i ]
  br label %cleanup44

if.end:
  %PRODUCERS = getelementptr inbounds %struct.ForeignWord, ptr %known, i64 0, i32 4
  %TYPE95 = getelementptr inbounds %struct.ProducerWord, ptr %PRODUCERS, i64 0, i32 0
  %18 = load i64, ptr %TYPE95, align 8
  %19 = inttoptr i64 %18 to ptr
  %cmp6.not96 = icmp eq ptr %0, %19
  br i1 %cmp6.not96, label %while.end, label %while.body

while.body:
  %20 = phi i64 [ %21, %if.end10 ], [ %18, %if.end ]
  %producer.097 = phi ptr [ %incdec.ptr, %if.end10 ], [ %PRODUCERS, %if.end ]
  %tobool8.not = icmp eq i64 %20, 0
  br i1 %tobool8.not, label %cleanup44, label %if.end10

if.end10:
  %incdec.ptr = getelementptr %struct.ProducerWord, ptr %producer.097, i64 1
  %21 = load i64, ptr %incdec.ptr, align 8
  %22 = inttoptr i64 %21 to ptr
  %cmp6.not = icmp eq ptr %0, %22
  br i1 %cmp6.not, label %while.end, label %while.body

while.end:
  %producer.0.lcssa = phi ptr [ %PRODUCERS, %if.end ], [ %incdec.ptr, %if.end10 ]
  %tobool11.not = icmp eq i32 %writes, 0
  br i1 %tobool11.not, label %if.end15, label %land.lhs.true12

land.lhs.true12:
  %WRITABLE = getelementptr inbounds %struct.ProducerWord, ptr %producer.0.lcssa, i64 0, i32 4
  %23 = load i64, ptr %WRITABLE, align 8
  %tobool13.not = icmp eq i64 %23, 0
  br i1 %tobool13.not, label %cleanup44, label %if.end15

if.end15:
  %ATTRIBUTE = getelementptr inbounds %struct.ProducerWord, ptr %producer.0.lcssa, i64 0, i32 2
  %24 = load i64, ptr %ATTRIBUTE, align 8
  %METHOD = getelementptr inbounds %struct.ProducerWord, ptr %producer.0.lcssa, i64 0, i32 3
  %25 = load i64, ptr %METHOD, align 8
  %26 = inttoptr i64 %25 to ptr
  %cmp16.not = icmp eq i64 %24, 0
  br i1 %cmp16.not, label %if.end21, label %land.lhs.true17

land.lhs.true17:
  %27 = inttoptr i64 %24 to ptr
  %call18 = tail call ptr @PyObject_GetAttr(ptr %object, ptr %27)
  %cmp.i73 = icmp eq ptr %call18, null
  br i1 %cmp.i73, label %is_false.exit.thread, label %is_false.exit

is_false.exit.thread:
  tail call void @PyErr_Clear()
  br label %cleanup44

is_false.exit:
  tail call void @Py_DecRef(ptr %call18)
  %FALSE.i = getelementptr inbounds %struct.ForeignWord, ptr %known, i64 0, i32 3
  %28 = load i64, ptr %FALSE.i, align 8
  %29 = inttoptr i64 %28 to ptr
  %cmp1.i75 = icmp eq ptr %call18, %29
  br i1 %cmp1.i75, label %if.end21, label %cleanup44

if.end21:
  %cmp22.not = icmp eq i64 %25, 0
  br i1 %cmp22.not, label %if.end27, label %land.lhs.true23

land.lhs.true23:
  %call24 = call ptr @PyObject_VectorcallMethod(ptr %26, ptr %object.addr, i64 1, ptr null)
  %cmp.i76 = icmp eq ptr %call24, null
  br i1 %cmp.i76, label %is_false.exit82.thread, label %is_false.exit82

is_false.exit82.thread:
  call void @PyErr_Clear()
  br label %cleanup44

is_false.exit82:
  call void @Py_DecRef(ptr %call24)
  %FALSE.i78 = getelementptr inbounds %struct.ForeignWord, ptr %known, i64 0, i32 3
  %30 = load i64, ptr %FALSE.i78, align 8
  %31 = inttoptr i64 %30 to ptr
  %cmp1.i79 = icmp eq ptr %call24, %31
  br i1 %cmp1.i79, label %is_false.exit82.if.end27_crit_edge, label %cleanup44

is_false.exit82.if.end27_crit_edge:
  %.pre = load ptr, ptr %object.addr, align 8
  br label %if.end27

if.end27:
  %32 = phi ptr [ %.pre, %is_false.exit82.if.end27_crit_edge ], [ %object, %if.end21 ]
  %FUNCTION = getelementptr inbounds %struct.ProducerWord, ptr %producer.0.lcssa, i64 0, i32 1
  %33 = load i64, ptr %FUNCTION, align 8
  %34 = inttoptr i64 %33 to ptr
  %call28 = call i32 %34(ptr %32, ptr %tensor)
  %tobool29.not = icmp eq i32 %call28, 0
  br i1 %tobool29.not, label %if.end31, label %if.then30

if.then30:
  call void @PyErr_Clear()
  br label %cleanup

if.end31:
  %NDIM.i = getelementptr inbounds %struct.Field, ptr %record, i64 0, i32 2
  %35 = load i64, ptr %NDIM.i, align 8
  %device.i = getelementptr inbounds %struct.Tensor, ptr %tensor, i64 0, i32 1
  %36 = load i32, ptr %device.i, align 8
  %cmp.not.i = icmp eq i32 %36, 1
  %ndim1.i = getelementptr inbounds %struct.Tensor, ptr %tensor, i64 0, i32 3
  %37 = load i32, ptr %ndim1.i, align 8
  %conv.i83 = zext i32 %37 to i64
  %cmp2.not.i = icmp eq i64 %35, %conv.i83
  %or.cond93 = select i1 %cmp.not.i, i1 %cmp2.not.i, i1 false
  br i1 %or.cond93, label %lor.lhs.false4.i, label %cleanup

lor.lhs.false4.i:
  %dtype.i = getelementptr inbounds %struct.Tensor, ptr %tensor, i64 0, i32 4
  %38 = load i32, ptr %dtype.i, align 4
  %conv5.i = zext i32 %38 to i64
  %39 = load i64, ptr %ELEMENT, align 8
  %cmp6.not.i = icmp eq i64 %39, %conv5.i
  br i1 %cmp6.not.i, label %if.end.i85, label %cleanup

if.end.i85:
  %strides.i = getelementptr inbounds %struct.Tensor, ptr %tensor, i64 0, i32 6
  %40 = load ptr, ptr %strides.i, align 8
  %cmp8.i = icmp eq ptr %40, null
  br i1 %cmp8.i, label %lor.end.i, label %lor.rhs.i

lor.rhs.i:
  %NBYTES.i = getelementptr inbounds %struct.Field, ptr %record, i64 0, i32 4
  %41 = load i64, ptr %NBYTES.i, align 8
  %cmp10.i = icmp ne i64 %41, 0
  br label %lor.end.i

lor.end.i:
  %42 = phi i1 [ false, %if.end.i85 ], [ %cmp10.i, %lor.rhs.i ]
  %cmp1254.i = icmp sgt i64 %35, 0
  br i1 %cmp1254.i, label %for.body.lr.ph.i, label %if.end34

for.body.lr.ph.i:
  %DIMS.i = getelementptr inbounds %struct.Field, ptr %record, i64 0, i32 3
  %43 = load i64, ptr %DIMS.i, align 8
  %44 = inttoptr i64 %43 to ptr
  %shape.i = getelementptr inbounds %struct.Tensor, ptr %tensor, i64 0, i32 5
  %45 = load ptr, ptr %shape.i, align 8
  br label %for.body.i

for.body.i:
  %dec56.in.i = phi i64 [ %35, %for.body.lr.ph.i ], [ %dec56.i, %cleanup.i ]
  %dense.055.i = phi i64 [ 1, %for.body.lr.ph.i ], [ %mul.i, %cleanup.i ]
  %dec56.i = add nsw i64 %dec56.in.i, -1
  %arrayidx.i = getelementptr i64, ptr %44, i64 %dec56.i
  %46 = load i64, ptr %arrayidx.i, align 8
  %arrayidx14.i = getelementptr i64, ptr %45, i64 %dec56.i
  %47 = load i64, ptr %arrayidx14.i, align 8
  %cmp15.not.i = icmp eq i64 %47, %46
  br i1 %cmp15.not.i, label %if.end18.i, label %cleanup

if.end18.i:
  %cmp19.i = icmp ne i64 %46, 1
  %or.cond.i = select i1 %42, i1 %cmp19.i, i1 false
  br i1 %or.cond.i, label %land.lhs.true21.i, label %cleanup.i

land.lhs.true21.i:
  %arrayidx23.i = getelementptr i64, ptr %40, i64 %dec56.i
  %48 = load i64, ptr %arrayidx23.i, align 8
  %cmp24.not.i = icmp eq i64 %48, %dense.055.i
  br i1 %cmp24.not.i, label %cleanup.i, label %cleanup

cleanup.i:
  %mul.i = mul i64 %46, %dense.055.i
  %cmp12.i = icmp ugt i64 %dec56.in.i, 1
  br i1 %cmp12.i, label %for.body.i, label %if.end34

if.end34:
  %data35 = getelementptr inbounds %struct.Tensor, ptr %tensor, i64 0, i32 0
  %49 = load ptr, ptr %data35, align 8
  %offset = getelementptr inbounds %struct.Tensor, ptr %tensor, i64 0, i32 7
  %50 = load i64, ptr %offset, align 8
  %add.ptr36 = getelementptr i8, ptr %49, i64 %50
  %51 = lshr i64 %1, 11
  %and = and i64 %51, 31
  %52 = ptrtoint ptr %add.ptr36 to i64
  %sub = add nsw i64 %and, -1
  %and38 = and i64 %sub, %52
  %tobool39.not = icmp eq i64 %and38, 0
  %cond = select i1 %tobool39.not, ptr %add.ptr36, ptr null
  br label %cleanup

cleanup:
  %retval.0 = phi ptr [ null, %if.then30 ], [ %cond, %if.end34 ], [ null, %lor.lhs.false4.i ], [ null, %if.end31 ], [ null, %land.lhs.true21.i ], [ null, %for.body.i ]
  br label %cleanup44

cleanup44:
  %retval.3 = phi ptr [ null, %land.lhs.true12 ], [ %retval.0, %cleanup ], [ null, %is_false.exit ], [ null, %is_false.exit82 ], [ %retval.1.i, %cleanup28.i ], [ %number, %if.then3.i ], [ %14, %if.end6.i ], [ null, %if.then.i ], [ null, %is_false.exit.thread ], [ null, %is_false.exit82.thread ], [ null, %while.body ]
  ret ptr %retval.3
}

declare ptr @PyObject_GetAttr(ptr, ptr)

declare ptr @PyObject_VectorcallMethod(ptr, ptr, i64, ptr)

declare void @PyErr_Clear()

declare float @llvm.fabs.f32(float)

declare double @llvm.fabs.f64(double)

declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)

declare void @Py_DecRef(ptr)
