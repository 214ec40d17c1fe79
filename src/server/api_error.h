// An error as HTTP clients see it.
#pragma once

#include <stdexcept>
#include <string>

#include <slipring/error.h>

namespace slipring::server {

/// Status and the fields of OpenAI's error object.
class ApiError : public std::runtime_error {
 public:
  ApiError(int status, std::string type, const std::string& message, std::string param = "", std::string code = "")
      : std::runtime_error(message),
        status_(status),
        type_(std::move(type)),
        param_(std::move(param)),
        code_(std::move(code)) {}

  /// 400 about one field.
  static ApiError bad_request(const std::string& param, const std::string& message, std::string code = "") {
    return {400, "invalid_request_error", message, param, std::move(code)};
  }
  /// The library's errors: what the caller can change is 400, all else 500.
  static ApiError from(const Error& error);

  int status() const noexcept { return status_; }
  /// {"error": {"message", "type", "param", "code"}}
  std::string body() const;

 private:
  int status_;
  std::string type_;
  std::string param_;
  std::string code_;
};

}  // namespace slipring::server
