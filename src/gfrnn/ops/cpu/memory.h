// Memory for the kernels. The standard containers are avoided on purpose: their functions have external linkage, so the
// linker could keep the copy compiled for AVX-512 and run it on a CPU that has none. These have internal linkage.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

inline int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t larger(int64_t a, int64_t b) { return a < b ? b : a; }

template <class F>
inline void copy(F* to, const F* from, int64_t n) {
  if (n > 0) std::memcpy(to, from, static_cast<size_t>(n) * sizeof(F));
}

template <class F>
inline void clear(F* to, int64_t n) {  // all bits 0 is 0.0
  if (n > 0) std::memset(to, 0, static_cast<size_t>(n) * sizeof(F));
}

// Scratch memory, aligned for whole registers, not initialised. Moves, does not copy.
template <class F>
class Room {
 public:
  Room() = default;
  explicit Room(int64_t size) {
    const int64_t bytes = round_up(larger(size, 1) * static_cast<int64_t>(sizeof(F)), 64);
    data_ = static_cast<F*>(std::aligned_alloc(64, static_cast<size_t>(bytes)));
    if (!data_) throw std::bad_alloc();
  }
  Room(Room&& other) noexcept : data_(other.data_) { other.data_ = nullptr; }
  Room& operator=(Room&& other) noexcept {
    if (this != &other) {
      std::free(data_);
      data_ = other.data_;
      other.data_ = nullptr;
    }
    return *this;
  }
  ~Room() { std::free(data_); }
  F* get() const { return data_; }

 private:
  F* data_ = nullptr;
};

// A growing array.
template <class T>
class List {
 public:
  List() = default;
  explicit List(int64_t size) { resize(size); }
  List(const List& other) { append(other); }
  List(List&& other) noexcept : data_(other.data_), size_(other.size_), room_(other.room_) { other.forget(); }
  List& operator=(List other) noexcept {
    release();
    data_ = other.data_, size_ = other.size_, room_ = other.room_;
    other.forget();
    return *this;
  }
  ~List() { release(); }

  int64_t size() const { return size_; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T& operator[](int64_t i) { return data_[i]; }
  const T& operator[](int64_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }

  void empty_out() {
    for (int64_t i = 0; i < size_; i++) data_[i].~T();
    size_ = 0;
  }
  void push(T value) {
    if (size_ == room_) grow(room_ ? 2 * room_ : 16);
    new (data_ + size_++) T(static_cast<T&&>(value));
  }
  void append(const List& other) {
    for (const T& value : other) push(value);
  }
  void resize(int64_t size) {
    if (size > room_) grow(size);
    while (size_ < size) new (data_ + size_++) T();
    while (size_ > size) data_[--size_].~T();
  }

 private:
  void grow(int64_t room) {
    T* wider = static_cast<T*>(std::malloc(static_cast<size_t>(room) * sizeof(T)));
    if (!wider) throw std::bad_alloc();
    for (int64_t i = 0; i < size_; i++) {
      new (wider + i) T(static_cast<T&&>(data_[i]));
      data_[i].~T();
    }
    std::free(data_);
    data_ = wider;
    room_ = room;
  }
  void release() {
    empty_out();
    std::free(data_);
    data_ = nullptr;
  }
  void forget() { data_ = nullptr, size_ = 0, room_ = 0; }

  T* data_ = nullptr;
  int64_t size_ = 0, room_ = 0;
};

}  // namespace
