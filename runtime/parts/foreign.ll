
; The text of foreign.py, a part of the module of entry_text.py: where the data of an object lies that is no array.

declare i64 @PyLong_AsLongLongAndOverflow(ptr, ptr)
declare ptr @PyObject_GetAttr(ptr, ptr)
declare ptr @PyObject_VectorcallMethod(ptr, ptr, i64, ptr)
declare void @Py_DecRef(ptr)
declare void @PyErr_Clear()
declare double @llvm.fabs.f64(double)
declare float @llvm.fabs.f32(float)

; The address of the data of an object that is as its record expects; null of any other one, without an exception.
; number: memory for one word, where a number of Python is put. writes: it shall be written to.
define internal ptr @data_of(ptr %object, ptr %record, ptr %number, ptr %known, i1 %writes) {
$words
$fields
  %overflow = alloca i32
  %tensor = alloca { ptr, i32, i32, i32, i32, ptr, ptr, i64 }
  %type_place = getelementptr i8, ptr %object, i64 $TYPE
  %type = load ptr, ptr %type_place
  %element = load i64, ptr %ELEMENT
  %ndim = load i64, ptr %NDIM
  %has_axes = icmp ne i64 %ndim, 0
  %is_no_number = or i1 %has_axes, %writes
  br i1 %is_no_number, label %tensors, label %numbers

numbers:
  %float = load ptr, ptr %FLOAT
  %float64 = load ptr, ptr %FLOAT64
  %int = load ptr, ptr %INT
  %is_float = icmp eq ptr %type, %float
  %is_float64 = icmp eq ptr %type, %float64
  %is_real = or i1 %is_float, %is_float64
  br i1 %is_real, label %real, label %look_for_int
look_for_int:
  %is_int = icmp eq ptr %type, %int
  br i1 %is_int, label %whole, label %tensors
real:
  %real_place = getelementptr i8, ptr %object, i64 $DATA
  %double = load double, ptr %real_place
  switch i64 %element, label %none [i64 $FLOAT64, label %real64
                                    i64 $FLOAT32, label %real32]
real64:
  store double %double, ptr %number
  ret ptr %number
real32:
  %single = fptrunc double %double to float
  store float %single, ptr %number
  %size64 = call double @llvm.fabs.f64(double %double)
  %size32 = call float @llvm.fabs.f32(float %single)
  %was_infinite = fcmp oeq double %size64, 0x7FF0000000000000
  %is_infinite = fcmp oeq float %size32, 0x7FF0000000000000
  %was_finite = xor i1 %was_infinite, true
  %overflows = and i1 %is_infinite, %was_finite
  br i1 %overflows, label %none, label %in_place
whole:
  %i64 = call i64 @PyLong_AsLongLongAndOverflow(ptr %object, ptr %overflow)
  %beyond = load i32, ptr %overflow
  %is_beyond = icmp ne i32 %beyond, 0
  br i1 %is_beyond, label %none, label %fits
fits:
  switch i64 %element, label %none [i64 $FLOAT64, label %whole64
                                    i64 $FLOAT32, label %whole32
                                    i64 $INT64, label %long
                                    i64 $INT32, label %short]
whole64:
  %as_double = sitofp i64 %i64 to double
  store double %as_double, ptr %number
  ret ptr %number
whole32:
  %as_float = sitofp i64 %i64 to float
  store float %as_float, ptr %number
  ret ptr %number
long:
  store i64 %i64, ptr %number
  ret ptr %number
short:
  %i32 = trunc i64 %i64 to i32
  store i32 %i32, ptr %number
  %back = sext i32 %i32 to i64
  %is_whole = icmp eq i64 %back, %i64
  br i1 %is_whole, label %in_place, label %none
in_place:
  ret ptr %number

tensors:
  br label %next
next:
  %producer = phi ptr [ %PRODUCERS, %tensors ], [ %following, %other ]
$producer
  %its_type = load ptr, ptr %TYPE
  %is_last = icmp eq ptr %its_type, null
  br i1 %is_last, label %none, label %compare
compare:
  %following = getelementptr i64, ptr %producer, i64 $PRODUCER
  %is_found = icmp eq ptr %its_type, %type
  br i1 %is_found, label %found, label %other
other:
  br label %next
found:
  %writable = load i64, ptr %WRITABLE
  %is_constant = icmp eq i64 %writable, 0
  %is_refused = and i1 %is_constant, %writes
  br i1 %is_refused, label %none, label %look_for_gradient
look_for_gradient:
  %false = load ptr, ptr %FALSE
  %attribute = load ptr, ptr %ATTRIBUTE
  %has_no_attribute = icmp eq ptr %attribute, null
  br i1 %has_no_attribute, label %look_for_sign, label %read_attribute
read_attribute:
  %value = call ptr @PyObject_GetAttr(ptr %object, ptr %attribute)
  %is_unread = icmp eq ptr %value, null
  br i1 %is_unread, label %raised, label %drop_value
drop_value:
  call void @Py_DecRef(ptr %value)
  %is_plain = icmp eq ptr %value, %false
  br i1 %is_plain, label %look_for_sign, label %none
look_for_sign:
  %method = load ptr, ptr %METHOD
  %has_no_method = icmp eq ptr %method, null
  br i1 %has_no_method, label %export, label %call_method
call_method:
  store ptr %object, ptr %number
  %answer = call ptr @PyObject_VectorcallMethod(ptr %method, ptr %number, i64 1, ptr null)
  %is_silent = icmp eq ptr %answer, null
  br i1 %is_silent, label %raised, label %drop_answer
drop_answer:
  call void @Py_DecRef(ptr %answer)
  %is_as_stored = icmp eq ptr %answer, %false
  br i1 %is_as_stored, label %export, label %none
export:
  %function = load ptr, ptr %FUNCTION
  %status = call i32 %function(ptr %object, ptr %tensor)
  %failed = icmp ne i32 %status, 0
  br i1 %failed, label %raised, label %check
raised:
  call void @PyErr_Clear()
  ret ptr null
check:
  %device_place = getelementptr i8, ptr %tensor, i64 8
  %device = load i32, ptr %device_place
  %is_here = icmp eq i32 %device, $CPU
  %rank_place = getelementptr i8, ptr %tensor, i64 16
  %rank32 = load i32, ptr %rank_place
  %rank = zext i32 %rank32 to i64
  %same_rank = icmp eq i64 %rank, %ndim
  %dtype_place = getelementptr i8, ptr %tensor, i64 20
  %dtype32 = load i32, ptr %dtype_place
  %dtype = zext i32 %dtype32 to i64
  %same_dtype = icmp eq i64 %dtype, %element
  %known_place = and i1 %is_here, %same_rank
  %is_alike = and i1 %known_place, %same_dtype
  br i1 %is_alike, label %axes, label %none
axes:
  %dims = load ptr, ptr %DIMS
  %shape_place = getelementptr i8, ptr %tensor, i64 24
  %shape = load ptr, ptr %shape_place
  %strides_place = getelementptr i8, ptr %tensor, i64 32
  %strides = load ptr, ptr %strides_place
  %is_compact = icmp eq ptr %strides, null
  %nbytes = load i64, ptr %NBYTES
  %is_empty = icmp eq i64 %nbytes, 0
  %any_strides = or i1 %is_compact, %is_empty
  br label %axis
axis:
  %left = phi i64 [ %ndim, %axes ], [ %this, %stride_fits ]
  %dense = phi i64 [ 1, %axes ], [ %denser, %stride_fits ]
  %is_whole_shape = icmp eq i64 %left, 0
  br i1 %is_whole_shape, label %locate, label %size
size:
  %this = sub i64 %left, 1
  %expected_place = getelementptr i64, ptr %dims, i64 %this
  %expected = load i64, ptr %expected_place
  %actual_place = getelementptr i64, ptr %shape, i64 %this
  %actual = load i64, ptr %actual_place
  %denser = mul i64 %dense, %expected
  %same_size = icmp eq i64 %expected, %actual
  br i1 %same_size, label %stride, label %none
stride:
  %is_one = icmp eq i64 %expected, 1
  %any_stride = or i1 %any_strides, %is_one
  br i1 %any_stride, label %stride_fits, label %read_stride
read_stride:
  %stride_place = getelementptr i64, ptr %strides, i64 %this
  %step = load i64, ptr %stride_place
  %is_dense = icmp eq i64 %step, %dense
  br i1 %is_dense, label %stride_fits, label %none
stride_fits:
  br label %axis
locate:
  %first = load ptr, ptr %tensor
  %offset_place = getelementptr i8, ptr %tensor, i64 40
  %offset = load i64, ptr %offset_place
  %data = getelementptr i8, ptr %first, i64 %offset
  %address = ptrtoint ptr %data to i64
  %bits = lshr i64 %element, 8
  %width = and i64 %bits, 255
  %bytes = lshr i64 %width, 3
  %low = sub i64 %bytes, 1
  %past = and i64 %address, %low
  %is_aligned = icmp eq i64 %past, 0
  br i1 %is_aligned, label %done, label %none
done:
  ret ptr %data
none:
  ret ptr null
}
