; Made of foreign.c by make parts, from b30f8fd0fce1ef6f. Do not edit.

%struct.Tensor = type { ptr, i32, i32, i32, i32, ptr, ptr, i64 }
%struct.Field = type { i64, i64, i64, i64, i64, i64, i64, i64 }
%struct.ForeignWord = type { i64, i64, i64, i64, i64, i64 }
%struct.ProducerWord = type { i64, i64, i64, i64, i64 }

define hidden ptr @data_of(ptr %object, ptr %record, ptr %number, ptr %known, i32 %writes) {
entry:
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
  br i1 %cmp, label %land.lhs.true, label %lor.lhs.false

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
  br i1 %cmp2, label %land.lhs.true, label %if.end

land.lhs.true:
  %NDIM = getelementptr inbounds %struct.Field, ptr %record, i64 0, i32 2
  %8 = load i64, ptr %NDIM, align 8
  %tobool3 = icmp ne i64 %8, 0
  %tobool5 = icmp ne i32 %writes, 0
  %or.cond = or i1 %tobool5, %tobool3
  br i1 %or.cond, label %if.end, label %if.then

if.then:
  %call = tail call fastcc ptr @number_in(ptr %object, ptr %0, i64 %1, ptr %number, ptr %known)
  br label %cleanup59

if.end:
  %LIST = getelementptr inbounds %struct.ForeignWord, ptr %known, i64 0, i32 4
  %9 = load i64, ptr %LIST, align 8
  %10 = inttoptr i64 %9 to ptr
  %cmp6 = icmp eq ptr %0, %10
  br i1 %cmp6, label %land.lhs.true7, label %if.end16

land.lhs.true7:
  %LISTED = getelementptr inbounds %struct.Field, ptr %record, i64 0, i32 7
  %11 = load i64, ptr %LISTED, align 8
  %tobool8 = icmp eq i64 %11, 0
  %tobool10 = icmp ne i32 %writes, 0
  %or.cond62 = or i1 %tobool10, %tobool8
  br i1 %or.cond62, label %if.end16, label %if.then11

if.then11:
  %12 = inttoptr i64 %11 to ptr
  %call13 = tail call fastcc ptr @list_in(ptr %object, ptr %record, i64 0, ptr %12, ptr %known)
  %tobool14.not = icmp eq ptr %call13, null
  br i1 %tobool14.not, label %cleanup59, label %cond.true

cond.true:
  %13 = load i64, ptr %LISTED, align 8
  %14 = inttoptr i64 %13 to ptr
  br label %cleanup59

if.end16:
  %PRODUCERS = getelementptr inbounds %struct.ForeignWord, ptr %known, i64 0, i32 5
  %TYPE111 = getelementptr inbounds %struct.ProducerWord, ptr %PRODUCERS, i64 0, i32 0
  %15 = load i64, ptr %TYPE111, align 8
  %16 = inttoptr i64 %15 to ptr
  %cmp17.not112 = icmp eq ptr %0, %16
  br i1 %cmp17.not112, label %while.end, label %while.body

while.body:
  %17 = phi i64 [ %18, %if.end21 ], [ %15, %if.end16 ]
  %producer.0113 = phi ptr [ %incdec.ptr, %if.end21 ], [ %PRODUCERS, %if.end16 ]
  %tobool19.not = icmp eq i64 %17, 0
  br i1 %tobool19.not, label %cleanup59, label %if.end21

if.end21:
  %incdec.ptr = getelementptr %struct.ProducerWord, ptr %producer.0113, i64 1
  %18 = load i64, ptr %incdec.ptr, align 8
  %19 = inttoptr i64 %18 to ptr
  %cmp17.not = icmp eq ptr %0, %19
  br i1 %cmp17.not, label %while.end, label %while.body

while.end:
  %producer.0.lcssa = phi ptr [ %PRODUCERS, %if.end16 ], [ %incdec.ptr, %if.end21 ]
  %tobool22.not = icmp eq i32 %writes, 0
  br i1 %tobool22.not, label %if.end26, label %land.lhs.true23

land.lhs.true23:
  %WRITABLE = getelementptr inbounds %struct.ProducerWord, ptr %producer.0.lcssa, i64 0, i32 4
  %20 = load i64, ptr %WRITABLE, align 8
  %tobool24.not = icmp eq i64 %20, 0
  br i1 %tobool24.not, label %cleanup59, label %if.end26

if.end26:
  %ATTRIBUTE = getelementptr inbounds %struct.ProducerWord, ptr %producer.0.lcssa, i64 0, i32 2
  %21 = load i64, ptr %ATTRIBUTE, align 8
  %METHOD = getelementptr inbounds %struct.ProducerWord, ptr %producer.0.lcssa, i64 0, i32 3
  %22 = load i64, ptr %METHOD, align 8
  %23 = inttoptr i64 %22 to ptr
  %cmp27.not = icmp eq i64 %21, 0
  br i1 %cmp27.not, label %if.end32, label %land.lhs.true28

land.lhs.true28:
  %24 = inttoptr i64 %21 to ptr
  %call29 = tail call ptr @PyObject_GetAttr(ptr %object, ptr %24)
  %cmp.i = icmp eq ptr %call29, null
  br i1 %cmp.i, label %is_false.exit.thread, label %is_false.exit

is_false.exit.thread:
  tail call void @PyErr_Clear()
  br label %cleanup59

is_false.exit:
  tail call void @Py_DecRef(ptr %call29)
  %FALSE.i = getelementptr inbounds %struct.ForeignWord, ptr %known, i64 0, i32 3
  %25 = load i64, ptr %FALSE.i, align 8
  %26 = inttoptr i64 %25 to ptr
  %cmp1.i = icmp eq ptr %call29, %26
  br i1 %cmp1.i, label %if.end32, label %cleanup59

if.end32:
  %cmp33.not = icmp eq i64 %22, 0
  br i1 %cmp33.not, label %if.end38, label %land.lhs.true34

land.lhs.true34:
  %call35 = call ptr @PyObject_VectorcallMethod(ptr %23, ptr %object.addr, i64 1, ptr null)
  %cmp.i98 = icmp eq ptr %call35, null
  br i1 %cmp.i98, label %is_false.exit104.thread, label %is_false.exit104

is_false.exit104.thread:
  call void @PyErr_Clear()
  br label %cleanup59

is_false.exit104:
  call void @Py_DecRef(ptr %call35)
  %FALSE.i100 = getelementptr inbounds %struct.ForeignWord, ptr %known, i64 0, i32 3
  %27 = load i64, ptr %FALSE.i100, align 8
  %28 = inttoptr i64 %27 to ptr
  %cmp1.i101 = icmp eq ptr %call35, %28
  br i1 %cmp1.i101, label %is_false.exit104.if.end38_crit_edge, label %cleanup59

is_false.exit104.if.end38_crit_edge:
  %.pre = load ptr, ptr %object.addr, align 8
  br label %if.end38

if.end38:
  %29 = phi ptr [ %.pre, %is_false.exit104.if.end38_crit_edge ], [ %object, %if.end32 ]
  %FUNCTION = getelementptr inbounds %struct.ProducerWord, ptr %producer.0.lcssa, i64 0, i32 1
  %30 = load i64, ptr %FUNCTION, align 8
  %31 = inttoptr i64 %30 to ptr
  %call39 = call i32 %31(ptr %29, ptr %tensor)
  %tobool40.not = icmp eq i32 %call39, 0
  br i1 %tobool40.not, label %if.end42, label %if.then41

if.then41:
  call void @PyErr_Clear()
  br label %cleanup

if.end42:
  %NDIM.i = getelementptr inbounds %struct.Field, ptr %record, i64 0, i32 2
  %32 = load i64, ptr %NDIM.i, align 8
  %device.i = getelementptr inbounds %struct.Tensor, ptr %tensor, i64 0, i32 1
  %33 = load i32, ptr %device.i, align 8
  %cmp.not.i = icmp eq i32 %33, 1
  %ndim1.i = getelementptr inbounds %struct.Tensor, ptr %tensor, i64 0, i32 3
  %34 = load i32, ptr %ndim1.i, align 8
  %conv.i = zext i32 %34 to i64
  %cmp2.not.i = icmp eq i64 %32, %conv.i
  %or.cond109 = select i1 %cmp.not.i, i1 %cmp2.not.i, i1 false
  br i1 %or.cond109, label %lor.lhs.false4.i, label %cleanup

lor.lhs.false4.i:
  %dtype.i = getelementptr inbounds %struct.Tensor, ptr %tensor, i64 0, i32 4
  %35 = load i32, ptr %dtype.i, align 4
  %conv5.i = zext i32 %35 to i64
  %36 = load i64, ptr %ELEMENT, align 8
  %cmp6.not.i = icmp eq i64 %36, %conv5.i
  br i1 %cmp6.not.i, label %if.end.i105, label %cleanup

if.end.i105:
  %strides.i = getelementptr inbounds %struct.Tensor, ptr %tensor, i64 0, i32 6
  %37 = load ptr, ptr %strides.i, align 8
  %cmp8.i = icmp eq ptr %37, null
  br i1 %cmp8.i, label %lor.end.i, label %lor.rhs.i

lor.rhs.i:
  %NBYTES.i = getelementptr inbounds %struct.Field, ptr %record, i64 0, i32 4
  %38 = load i64, ptr %NBYTES.i, align 8
  %cmp10.i = icmp ne i64 %38, 0
  br label %lor.end.i

lor.end.i:
  %39 = phi i1 [ false, %if.end.i105 ], [ %cmp10.i, %lor.rhs.i ]
  %cmp1254.i = icmp sgt i64 %32, 0
  br i1 %cmp1254.i, label %for.body.lr.ph.i, label %if.end45

for.body.lr.ph.i:
  %DIMS.i = getelementptr inbounds %struct.Field, ptr %record, i64 0, i32 3
  %40 = load i64, ptr %DIMS.i, align 8
  %41 = inttoptr i64 %40 to ptr
  %shape.i = getelementptr inbounds %struct.Tensor, ptr %tensor, i64 0, i32 5
  %42 = load ptr, ptr %shape.i, align 8
  br label %for.body.i

for.body.i:
  %dec56.in.i = phi i64 [ %32, %for.body.lr.ph.i ], [ %dec56.i, %cleanup.i ]
  %dense.055.i = phi i64 [ 1, %for.body.lr.ph.i ], [ %mul.i, %cleanup.i ]
  %dec56.i = add nsw i64 %dec56.in.i, -1
  %arrayidx.i = getelementptr i64, ptr %41, i64 %dec56.i
  %43 = load i64, ptr %arrayidx.i, align 8
  %arrayidx14.i = getelementptr i64, ptr %42, i64 %dec56.i
  %44 = load i64, ptr %arrayidx14.i, align 8
  %cmp15.not.i = icmp eq i64 %44, %43
  br i1 %cmp15.not.i, label %if.end18.i, label %cleanup

if.end18.i:
  %cmp19.i = icmp ne i64 %43, 1
  %or.cond.i = select i1 %39, i1 %cmp19.i, i1 false
  br i1 %or.cond.i, label %land.lhs.true21.i, label %cleanup.i

land.lhs.true21.i:
  %arrayidx23.i = getelementptr i64, ptr %37, i64 %dec56.i
  %45 = load i64, ptr %arrayidx23.i, align 8
  %cmp24.not.i = icmp eq i64 %45, %dense.055.i
  br i1 %cmp24.not.i, label %cleanup.i, label %cleanup

cleanup.i:
  %mul.i = mul i64 %43, %dense.055.i
  %cmp12.i = icmp ugt i64 %dec56.in.i, 1
  br i1 %cmp12.i, label %for.body.i, label %if.end45

if.end45:
  %data46 = getelementptr inbounds %struct.Tensor, ptr %tensor, i64 0, i32 0
  %46 = load ptr, ptr %data46, align 8
  %offset = getelementptr inbounds %struct.Tensor, ptr %tensor, i64 0, i32 7
  %47 = load i64, ptr %offset, align 8
  %add.ptr47 = getelementptr i8, ptr %46, i64 %47
  %48 = lshr i64 %1, 11
  %and = and i64 %48, 31
  %49 = ptrtoint ptr %add.ptr47 to i64
  %sub = add nsw i64 %and, -1
  %and49 = and i64 %sub, %49
  %tobool50.not = icmp eq i64 %and49, 0
  %cond54 = select i1 %tobool50.not, ptr %add.ptr47, ptr null
  br label %cleanup

cleanup:
  %retval.0 = phi ptr [ null, %if.then41 ], [ %cond54, %if.end45 ], [ null, %lor.lhs.false4.i ], [ null, %if.end42 ], [ null, %land.lhs.true21.i ], [ null, %for.body.i ]
  br label %cleanup59

cleanup59:
  %retval.3 = phi ptr [ %call, %if.then ], [ %14, %cond.true ], [ null, %if.then11 ], [ null, %land.lhs.true23 ], [ %retval.0, %cleanup ], [ null, %is_false.exit ], [ null, %is_false.exit104 ], [ null, %is_false.exit.thread ], [ null, %is_false.exit104.thread ], [ null, %while.body ]
  ret ptr %retval.3
}

define internal fastcc ptr @number_in(ptr %object, ptr %type, i64 %element, ptr %place, ptr %known) {
entry:
  %overflow = alloca i32, align 4
  %FLOAT = getelementptr inbounds %struct.ForeignWord, ptr %known, i64 0, i32 0
  %0 = load i64, ptr %FLOAT, align 8
  %1 = inttoptr i64 %0 to ptr
  %cmp = icmp eq ptr %1, %type
  br i1 %cmp, label %if.then, label %lor.lhs.false

lor.lhs.false:
  %FLOAT64 = getelementptr inbounds %struct.ForeignWord, ptr %known, i64 0, i32 1
  %2 = load i64, ptr %FLOAT64, align 8
  %3 = inttoptr i64 %2 to ptr
  %cmp1 = icmp eq ptr %3, %type
  br i1 %cmp1, label %if.then, label %if.end9

if.then:
  %add.ptr = getelementptr i8, ptr %object, i64 $DATA
  %4 = load double, ptr %add.ptr, align 8
  switch i64 %element, label %return [
    i64 81922, label %if.then3
    i64 73730, label %if.end6
  ]

if.then3:
  store double %4, ptr %place, align 8
  br label %return

if.end6:
  %conv = fptrunc double %4 to float
  store float %conv, ptr %place, align 4
  %5 = tail call float @llvm.fabs.f32(float %conv)
  %cmpinf = fcmp oeq float %5, 0x7FF0000000000000
  %6 = tail call double @llvm.fabs.f64(double %4)
  %cmpinf7 = fcmp oeq double %6, 0x7FF0000000000000
  %phi.sel = select i1 %cmpinf7, ptr %place, ptr null
  %7 = select i1 %cmpinf, ptr %phi.sel, ptr %place
  br label %return

if.end9:
  %call = call i64 @PyLong_AsLongLongAndOverflow(ptr %object, ptr %overflow)
  %8 = load i32, ptr %overflow, align 4
  %tobool11.not = icmp eq i32 %8, 0
  br i1 %tobool11.not, label %if.end13, label %cleanup28

if.end13:
  switch i64 %element, label %cleanup28 [
    i64 81922, label %sw.bb
    i64 73730, label %sw.bb15
    i64 81920, label %sw.bb17
    i64 73728, label %sw.bb18
  ]

sw.bb:
  %conv14 = sitofp i64 %call to double
  store double %conv14, ptr %place, align 8
  br label %cleanup28

sw.bb15:
  %conv16 = sitofp i64 %call to float
  store float %conv16, ptr %place, align 4
  br label %cleanup28

sw.bb17:
  store i64 %call, ptr %place, align 8
  br label %cleanup28

sw.bb18:
  %conv19 = trunc i64 %call to i32
  store i32 %conv19, ptr %place, align 4
  %9 = add i64 %call, 2147483648
  %10 = icmp ult i64 %9, 4294967296
  %cond27 = select i1 %10, ptr %place, ptr null
  br label %cleanup28

cleanup28:
  %retval.1 = phi ptr [ %cond27, %sw.bb18 ], [ %place, %sw.bb17 ], [ %place, %sw.bb15 ], [ %place, %sw.bb ], [ null, %if.end9 ], [ null, %if.end13 ]
  br label %return

return:
  %retval.2 = phi ptr [ %retval.1, %cleanup28 ], [ %place, %if.then3 ], [ %7, %if.end6 ], [ null, %if.then ]
  ret ptr %retval.2
}

define internal fastcc ptr @list_in(ptr %list, ptr %record, i64 %axis, ptr %place, ptr %known) {
entry:
  %add.ptr = getelementptr i8, ptr %list, i64 $TYPE
  %0 = load ptr, ptr %add.ptr, align 8
  %LIST = getelementptr inbounds %struct.ForeignWord, ptr %known, i64 0, i32 4
  %1 = load i64, ptr %LIST, align 8
  %2 = inttoptr i64 %1 to ptr
  %cmp.not = icmp eq ptr %0, %2
  br i1 %cmp.not, label %if.end, label %return

if.end:
  %DIMS = getelementptr inbounds %struct.Field, ptr %record, i64 0, i32 3
  %3 = load i64, ptr %DIMS, align 8
  %4 = inttoptr i64 %3 to ptr
  %arrayidx = getelementptr i64, ptr %4, i64 %axis
  %5 = load i64, ptr %arrayidx, align 8
  %add.ptr1 = getelementptr i8, ptr %list, i64 $LIST_SIZE
  %6 = load i64, ptr %add.ptr1, align 8
  %cmp2.not = icmp eq i64 %6, %5
  br i1 %cmp2.not, label %if.end4, label %return

if.end4:
  %add.ptr5 = getelementptr i8, ptr %list, i64 $LIST_ITEMS
  %7 = load ptr, ptr %add.ptr5, align 8
  %ELEMENT = getelementptr inbounds %struct.Field, ptr %record, i64 0, i32 6
  %8 = load i64, ptr %ELEMENT, align 8
  %INT = getelementptr inbounds %struct.ForeignWord, ptr %known, i64 0, i32 2
  %cmp697 = icmp sgt i64 %5, 0
  br i1 %cmp697, label %for.body.lr.ph, label %return

for.body.lr.ph:
  %add = add i64 %axis, 1
  %NDIM = getelementptr inbounds %struct.Field, ptr %record, i64 0, i32 2
  %FLOAT = getelementptr inbounds %struct.ForeignWord, ptr %known, i64 0, i32 0
  %FLOAT64 = getelementptr inbounds %struct.ForeignWord, ptr %known, i64 0, i32 1
  %9 = lshr i64 %8, 11
  %and = and i64 %9, 31
  br label %for.body

for.body:
  %place.addr.099 = phi ptr [ %place, %for.body.lr.ph ], [ %place.addr.2, %for.inc ]
  %i.098 = phi i64 [ 0, %for.body.lr.ph ], [ %inc, %for.inc ]
  %arrayidx7 = getelementptr ptr, ptr %7, i64 %i.098
  %10 = load ptr, ptr %arrayidx7, align 8
  %11 = load i64, ptr %NDIM, align 8
  %cmp8 = icmp slt i64 %add, %11
  br i1 %cmp8, label %if.then9, label %if.end14

if.then9:
  %call = tail call fastcc ptr @list_in(ptr %10, ptr %record, i64 %add, ptr %place.addr.099, ptr %known)
  %cmp11 = icmp eq ptr %call, null
  br i1 %cmp11, label %return, label %for.inc

if.end14:
  %add.ptr15 = getelementptr i8, ptr %10, i64 $TYPE
  %12 = load ptr, ptr %add.ptr15, align 8
  %13 = load i64, ptr %FLOAT, align 8
  %14 = inttoptr i64 %13 to ptr
  %cmp16 = icmp eq ptr %12, %14
  br i1 %cmp16, label %if.end20.thread, label %lor.end

lor.end:
  %15 = load i64, ptr %FLOAT64, align 8
  %16 = inttoptr i64 %15 to ptr
  %cmp17 = icmp eq ptr %12, %16
  br i1 %cmp17, label %if.end20, label %land.lhs.true

land.lhs.true:
  %17 = load i64, ptr %INT, align 8
  %18 = inttoptr i64 %17 to ptr
  %cmp18.not = icmp eq ptr %12, %18
  br i1 %cmp18.not, label %if.end20.thread107, label %return

if.end20:
  %call21 = tail call fastcc ptr @number_in(ptr %10, ptr %12, i64 %8, ptr %place.addr.099, ptr %known)
  %cmp22 = icmp eq ptr %call21, null
  br i1 %cmp22, label %return, label %if.end38

if.end20.thread107:
  %call21108 = tail call fastcc ptr @number_in(ptr %10, ptr %12, i64 %8, ptr %place.addr.099, ptr %known)
  %cmp22109 = icmp eq ptr %call21108, null
  br i1 %cmp22109, label %return, label %land.lhs.true26

if.end20.thread:
  %call2189 = tail call fastcc ptr @number_in(ptr %10, ptr %12, i64 %8, ptr %place.addr.099, ptr %known)
  %cmp2290 = icmp eq ptr %call2189, null
  br i1 %cmp2290, label %return, label %if.end38

land.lhs.true26:
  switch i64 %8, label %if.end38 [
    i64 81922, label %cond.true
    i64 73730, label %cond.false
  ]

cond.true:
  %19 = load double, ptr %place.addr.099, align 8
  br label %cond.end

cond.false:
  %20 = load float, ptr %place.addr.099, align 4
  %conv = fpext float %20 to double
  br label %cond.end

cond.end:
  %cond = phi double [ %19, %cond.true ], [ %conv, %cond.false ]
  %cmp31 = fcmp olt double %cond, 0xC340000000000000
  %cmp34 = fcmp ogt double %cond, 0x4340000000000000
  %.demorgan = or i1 %cmp31, %cmp34
  br i1 %.demorgan, label %return, label %if.end38

if.end38:
  %add.ptr40 = getelementptr i8, ptr %place.addr.099, i64 %and
  br label %for.inc

for.inc:
  %place.addr.2 = phi ptr [ %call, %if.then9 ], [ %add.ptr40, %if.end38 ]
  %inc = add nuw nsw i64 %i.098, 1
  %exitcond.not = icmp eq i64 %inc, %5
  br i1 %exitcond.not, label %return, label %for.body

return:
  %retval.8 = phi ptr [ null, %entry ], [ null, %if.end ], [ %place, %if.end4 ], [ null, %if.end20.thread107 ], [ %place.addr.2, %for.inc ], [ null, %if.end20.thread ], [ null, %if.end20 ], [ null, %land.lhs.true ], [ null, %cond.end ], [ null, %if.then9 ]
  ret ptr %retval.8
}

declare ptr @PyObject_GetAttr(ptr, ptr)

declare ptr @PyObject_VectorcallMethod(ptr, ptr, i64, ptr)

declare void @PyErr_Clear()

declare float @llvm.fabs.f32(float)

declare double @llvm.fabs.f64(double)

declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)

declare void @Py_DecRef(ptr)
