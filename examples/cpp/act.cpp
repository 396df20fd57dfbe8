// Act by a policy that `policy.export("policy.ts")` wrote, without Python.
//
//   act policy.ts < observations.txt
//
// Each line is an observation, numbers between spaces, and the numbers of its action are printed in a line. An empty
// line begins another episode, of a recurrent policy with states of zeros, and gets no answer. A line that is no
// observation is answered by "error", so that answers stay in step with questions, and the reason goes to the standard
// error.

#include <ATen/Parallel.h>
#include <torch/script.h>

#include <cmath>
#include <cstdlib>
#include <iostream>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

// The number that a pattern finds in the metadata; -1 where there is none. Patterns also match what earlier versions
// wrote, with each value as a text in quotes.
int64_t number_in(const std::string& metadata, const std::string& pattern) {
  std::smatch found;
  return std::regex_search(metadata, found, std::regex(pattern)) ? std::stoll(found[1]) : -1;
}

// The numbers of a line, which must be as many as are expected, and finite: the network answers NaN with some action.
std::vector<float> observation_of(const std::vector<std::string>& words, int64_t expected) {
  const std::string wanted = "expected " + std::to_string(expected) + " finite numbers of an observation: ";
  std::vector<float> numbers;
  for (const std::string& word : words) {
    char* end = nullptr;
    numbers.push_back(std::strtof(word.c_str(), &end));
    if (*end != '\0' || !std::isfinite(numbers.back()))
      throw std::invalid_argument(wanted + "'" + word + "' is not a finite number");
  }
  if (static_cast<int64_t>(numbers.size()) != expected)
    throw std::invalid_argument(wanted + "got " + std::to_string(numbers.size()) + " numbers");
  return numbers;
}

// The text of an error, without the addresses of functions that LibTorch adds to its own.
std::string reason_of(const std::exception& error) {
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  return of_torch == nullptr ? error.what() : of_torch->what_without_backtrace();
}

int main(int count, char** arguments) {
  if (count != 2) {
    std::cerr << "usage: act policy.ts < observations.txt\n";
    return 2;
  }
  try {
    // Operations on small networks take less time in one thread.
    at::set_num_threads(1);
    const torch::InferenceMode without_gradients;
    torch::jit::ExtraFilesMap extra{{"metadata.json", ""}};
    torch::jit::Module policy = torch::jit::load(arguments[1], torch::kCPU, extra);
    const std::string metadata = extra["metadata.json"];
    std::cerr << metadata << "\n";

    const int64_t expected = number_in(metadata, R"re("input_sizes": "?\[(\d+))re");
    if (expected < 0) throw std::invalid_argument("the file has no sizes of inputs; export the policy again");
    const int64_t size = number_in(metadata, R"re("states": "?\{\\?"size\\?": (\d+))re");
    const bool has_memory = size > 0;
    at::Tensor states = torch::zeros({1, has_memory ? size : 0});
    int64_t number = 0;
    for (std::string line; std::getline(std::cin, line);) {
      ++number;
      std::istringstream text(line);
      std::vector<std::string> words;
      for (std::string word; text >> word;) words.push_back(word);
      if (words.empty()) {
        states.zero_();
        continue;
      }
      try {
        // A batch of one observation. Networks take the dtype of the observation space, here float32.
        at::Tensor observation = torch::tensor(observation_of(words, expected)).unsqueeze(0);
        at::Tensor action;
        if (has_memory) {
          const auto outputs = policy.forward({observation, states}).toTuple();
          action = outputs->elements()[0].toTensor();
          states = outputs->elements()[1].toTensor().clone();
        } else {
          action = policy.forward({observation}).toTensor();
        }
        const at::Tensor flat = action.flatten().to(torch::kDouble);
        std::cout.precision(9);
        for (int64_t i = 0; i < flat.numel(); ++i) std::cout << (i ? " " : "") << flat[i].item<double>();
        std::cout << std::endl;
      } catch (const std::exception& error) {
        std::cerr << "act: line " << number << ": " << reason_of(error) << "\n";
        std::cout << "error" << std::endl;
      }
    }
  } catch (const std::exception& error) {
    std::cerr << "act: " << reason_of(error) << "\n";
    return 1;
  }
  return 0;
}
